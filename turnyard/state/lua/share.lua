-- Give a shard its parts of what the whole deployment may run, and say what it uses of them.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: limits, running, run:<resource>, flows, f:<flow>, blocked:<resource>
-- ARGV  plan     the version of the plan: one that is older than the last that was heard changes nothing
--       pairs    resource (`all`, or t/<tenant>, p/<pool>) and its part, or -1 to leave it as it is
-- Returns STALE and the version that was heard; or OK and, per resource, its part (-1: none yet), what is used, how many wait for it
-- A lost reply costs nothing: the next call says what is so.
local function field(res) return res == 'all' and 'max' or 'l:' .. res end

local function used_of(res) return res == 'all' and call('ZCARD', RUNNING) or call('SCARD', P .. 'run:' .. res) end

-- Whoever has room of every other kind is in a flow that is listed; a look at the first twenty is enough to see a need.
local function waiting_for(res)
  if res ~= 'all' then return waiters(res) end
  local n = 0
  for _, flow in ipairs(call('ZRANGE', FLOWS, 0, 19)) do n = n + call('ZCARD', flow_key(flow)) end
  return n
end

local function give(res, part)
  local was = tonumber(limit(field(res)) or -1)
  if part < 0 or part == was then return end
  set_limit(field(res), part)
  if part < was then return end
  if res ~= 'all' then wake_one(res) end
  leave_wake()
end

local function main()
  local plan = tonumber(ARGV[1])
  local heard = tonumber(limit('plan') or 0)
  if plan < heard then return {'STALE', heard} end
  set_limit('plan', plan)
  local out = {'OK'}
  for i = 2, #ARGV, 2 do
    local res = ARGV[i]
    give(res, tonumber(ARGV[i + 1]))
    out[#out + 1] = {tonumber(limit(field(res)) or -1), used_of(res), waiting_for(res)}
  end
  return out
end
