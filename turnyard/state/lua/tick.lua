-- uses: prelude head rows jobs flows items cancel fleet admit upkeep
-- Bounded maintenance: what only time can settle.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: workers, fleet, w:<owner>, running, deadlines, blocked, limits and what admit touches
-- ARGV  who      dispatcher | supervisor (leaves admission to a dispatcher and a wake entry on ingress)
--       parts    which to do: w workers, b begin-by, d deadlines, r re-checks and tags
--       lease_ms, tick_ms  after a gap of more than three ticks nobody expires for one lease
--       owners   incarnations known to be dead, each one argument
-- Returns expelled (turns and tasks handed back), returned (assignments past begin-by), due, admitted
-- A lost reply costs nothing: every part finds the rest next time.
local who, parts, lease_ms, tick_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local function asked(part) return string.find(parts, part, 1, true) end
local last = call('HMGET', LIMITS, 'tick', 'amnesty')
local amnesty = tonumber(last[2] or 0)
if who == 'dispatcher' then
  if last[1] and NOW - tonumber(last[1]) > 3 * tick_ms then amnesty = NOW + lease_ms end
  call('HSET', LIMITS, 'tick', NOW, 'amnesty', amnesty)
end
local expelled = 0
for i = 5, #ARGV do expelled = expelled + expel(ARGV[i]) end
if asked('w') then
  for _, owner in ipairs(call('ZRANGEBYSCORE', WORKERS, '-inf', '-inf', 'LIMIT', 0, 10)) do expelled = expelled + expel(owner) end
end
if asked('w') and NOW >= amnesty then
  for _, owner in ipairs(call('ZRANGEBYSCORE', WORKERS, '(-inf', NOW, 'LIMIT', 0, 10)) do expelled = expelled + expel(owner) end
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
save_all()
return {expelled, returned, due, admitted}
