-- Who is alive: leases in `workers`, what each one may run in `fleet`, and what pools and agents can take because of them.
local function fleet_of(owner)
  local raw = call('HGET', P .. 'fleet', owner)
  return raw and cjson.decode(raw) or nil
end

-- serve:<pool>:<agent> maps owner to serial:capacity; lo: is the lowest live serial and ca: the capacity of those who serve
-- the agent; c:<pool> the pool's capacity.
local function recount(pool, agent)
  local lowest, capacity
  for _, v in ipairs(call('HVALS', P .. 'serve:' .. pool .. ':' .. agent)) do
    local s, c = string.match(v, '^(%d+):(%d+)$')
    lowest = math.min(lowest or tonumber(s), tonumber(s))
    capacity = (capacity or 0) + tonumber(c)
  end
  set_limit('lo:' .. pool .. ':' .. agent, lowest or false)
  set_limit('ca:' .. pool .. ':' .. agent, capacity or false)
end

local function join(owner, info)
  for _, pool in ipairs(info.pools) do
    count_limit('c:' .. pool, info.capacity)
    for agent, serial in pairs(info.agents) do
      call('HSET', P .. 'serve:' .. pool .. ':' .. agent, owner, serial .. ':' .. info.capacity)
      recount(pool, agent)
      wake_one('a/' .. agent)
    end
    wake_one('p/' .. pool)
  end
end

local function part(owner)
  local info = fleet_of(owner)
  call('HDEL', P .. 'fleet', owner)
  if not info or info.role ~= 'worker' then return end
  for _, pool in ipairs(info.pools) do
    count_limit('c:' .. pool, -info.capacity)
    for agent in pairs(info.agents) do
      call('HDEL', P .. 'serve:' .. pool .. ':' .. agent, owner)
      recount(pool, agent)
    end
  end
end
