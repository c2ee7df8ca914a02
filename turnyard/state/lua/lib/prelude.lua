-- What every script starts with: the shard's prefix, the server's time, short names.
-- The only declared key is ty:{n}:ingress; all other keys are built from its prefix and so carry its hash tag.
local P = string.sub(KEYS[1], 1, -8)
local call = redis.call
local function now()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local NOW = now()
local INF = 'inf'
local function split(s)
  local out = {}
  for w in string.gmatch(s or '', '[^,]+') do out[#out + 1] = w end
  return out
end
