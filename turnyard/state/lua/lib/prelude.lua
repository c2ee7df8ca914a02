-- What every script starts from: its arguments, the shard's prefix and keys, the server's time.
-- The only declared key is ty:{n}:ingress; all other keys are built from its prefix and so carry its hash tag. The library is
-- loaded once and its functions are called many times, so enter() sets everything that belongs to one call.
local KEYS, ARGV, P, NOW, HEADS, LIM, LIM_DIRTY, LATER, TAKEN, OFFERED, call
local LIMITS, FLOWS, RUNNING, WORKERS, DEADLINES
local INF = 'inf'

local function now()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function enter(keys, args)
  KEYS, ARGV, HEADS, LIM, LIM_DIRTY, LATER, TAKEN, OFFERED, call = keys, args, {}, {}, {}, {}, {}, {}, redis.call
  P = string.sub(keys[1], 1, -8)
  NOW = now()
  LIMITS, FLOWS, RUNNING, WORKERS, DEADLINES = P .. 'limits', P .. 'flows', P .. 'running', P .. 'workers', P .. 'deadlines'
end

-- Writes to one key that nothing reads before the end of the call travel as one command, in the order in which they were made.
-- Only for commands that take any number of values.
local function later(command, key, ...)
  local w = LATER[command .. key]
  if not w then
    w = {command, key}
    LATER[command .. key] = w
    LATER[#LATER + 1] = w
  end
  for _, v in ipairs({...}) do w[#w + 1] = v end
end

-- The same for a command that takes one value, which is the same each time.
local function later_once(command, key, value)
  if not LATER[command .. key] then later(command, key, value) end
end

local function write_out()
  for _, w in ipairs(LATER) do call(unpack(w)) end
  LATER = {}
end

local function split(s)
  local out = {}
  if s and s ~= '' then
    for w in string.gmatch(s, '[^,]+') do out[#out + 1] = w end
  end
  return out
end
