-- Bounded maintenance: what only time can settle.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: workers, fleet, w:<owner>, running, deadlines, blocked, limits,
--                quarantine, dead and what admit touches
-- ARGV  who      dispatcher | supervisor (leaves admission to a dispatcher and a wake entry on ingress)
--       parts    which to do: w workers, b begin-by, d deadlines, r re-checks and tags
--       lease_ms, tick_ms  after a gap of more than three ticks nobody expires for one lease
--       alone    1: the only turn that a supervisor's dead child had in hand is its suspect
--       n, owners, suspects  n incarnations known to be dead, then the sessions that a supervisor suspects, each one argument
-- Returns expelled (turns and tasks handed back), returned (assignments past begin-by), due, admitted
-- A lost reply costs nothing: every part finds the rest next time.
local function asked(part) return string.find(ARGV[2], part, 1, true) end

local function main()
  local who, lease_ms, tick_ms = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
  want_limits('tick', 'amnesty')
  local amnesty = tonumber(limit('amnesty') or 0)
  if limit('tick') and NOW - tonumber(limit('tick')) > 3 * tick_ms then amnesty = NOW + lease_ms end
  if who == 'dispatcher' then
    set_limit('tick', NOW)
    set_limit('amnesty', amnesty)
  end
  local expelled, n = 0, tonumber(ARGV[6])
  local report = who == 'supervisor' and {alone = ARGV[5] == '1', suspects = {}} or nil
  for i = 7 + n, #ARGV do report.suspects[ARGV[i]] = true end
  -- All of them are fenced; what they held goes in hundreds, whoever held it.
  local function expel_all(owners, known)
    for _, owner in ipairs(owners) do expelled = expelled + expel(owner, BATCH - expelled, known) end
  end
  for i = 7, 6 + n do expel_all({ARGV[i]}, report) end
  if asked('w') then
    expel_all(call('ZRANGEBYSCORE', WORKERS, '-inf', '-inf', 'LIMIT', 0, 10))
  end
  if asked('w') and NOW >= amnesty then
    expel_all(call('ZRANGEBYSCORE', WORKERS, '(-inf', NOW, 'LIMIT', 0, 10))
  end
  local returned = asked('b') and past_begin_by() or 0
  local due = asked('d') and past_deadlines() or 0
  if asked('r') then
    recheck_blocked()
    forget_tags()
  end
  local admitted = 0
  if who == 'dispatcher' then
    admitted = admit()
  elseif expelled > 0 then
    call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake')
  end
  return {expelled, returned, due, admitted}
end
