-- Who is alive: leases in `workers`, what each one may run in `fleet`, and what pools and agents can take because of them.
local function fleet_of(owner)
  local raw = call('HGET', P .. 'fleet', owner)
  return raw and cjson.decode(raw) or nil
end

-- serve:<pool>:<agent> maps owner to serial:capacity; lo: is the lowest live serial and ca: the capacity of those who serve
-- the agent; c:<pool> the pool's capacity. reads:<pool>:<agent> maps those who know a newer schema than the first to the newest they
-- know; hs: is the newest that all of them know.
local function recount_schemas(pool, agent)
  local key, serve, reads = P .. 'reads:' .. pool .. ':' .. agent, P .. 'serve:' .. pool .. ':' .. agent, {}
  local raw = call('HGETALL', key)
  for i = 1, #raw, 2 do
    -- A supervisor of an older version that ticks out a worker does not know of this hash.
    if call('HEXISTS', serve, raw[i]) == 1 then reads[#reads + 1] = tonumber(raw[i + 1]) else call('HDEL', key, raw[i]) end
  end
  local all = #reads > 0 and #reads == call('HLEN', serve) and math.min(unpack(reads))
  set_limit('hs:' .. pool .. ':' .. agent, all or false)
end

-- po:<agent> are the pools in which it is served, the last to come at the end.
local function recount_pools(pool, agent, served)
  if string.find(pool, '!', 1, true) then return end
  local pools = without(split(limit('po:' .. agent)), pool)
  if served then pools[#pools + 1] = pool end
  set_limit('po:' .. agent, #pools > 0 and table.concat(pools, ','))
end

local function recount(pool, agent)
  local lowest, capacity
  for _, v in ipairs(call('HVALS', P .. 'serve:' .. pool .. ':' .. agent)) do
    local s, c = string.match(v, '^(%d+):(%d+)$')
    lowest = math.min(lowest or tonumber(s), tonumber(s))
    capacity = (capacity or 0) + tonumber(c)
  end
  set_limit('lo:' .. pool .. ':' .. agent, lowest or false)
  set_limit('ca:' .. pool .. ':' .. agent, capacity or false)
  recount_pools(pool, agent, capacity)
  recount_schemas(pool, agent)
end

-- The newest schema that an incarnation knows; it wrote so when it joined.
local function newest_of(info) return info.schemas and info.schemas[2] or 1 end
-- `iso` maps a host to the owner that runs turns alone there: at most one, so that a lost host says which turn it was.
local function alone(info) return string.find((info.pools or {})[1] or '', '!2', 1, true) end

local function join(owner, info)
  if alone(info) then call('HSET', P .. 'iso', info.host or '', owner) end
  for _, pool in ipairs(info.pools) do
    count_limit('c:' .. pool, info.capacity)
    for agent, serial in pairs(info.agents) do
      call('HSET', P .. 'serve:' .. pool .. ':' .. agent, owner, serial .. ':' .. info.capacity)
      if newest_of(info) > 1 then call('HSET', P .. 'reads:' .. pool .. ':' .. agent, owner, newest_of(info)) end
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
  if alone(info) and call('HGET', P .. 'iso', info.host or '') == owner then call('HDEL', P .. 'iso', info.host or '') end
  for _, pool in ipairs(info.pools) do
    count_limit('c:' .. pool, -info.capacity)
    for agent in pairs(info.agents) do
      call('HDEL', P .. 'serve:' .. pool .. ':' .. agent, owner)
      call('HDEL', P .. 'reads:' .. pool .. ':' .. agent, owner)
      recount(pool, agent)
    end
  end
end

-- From now on this owner has this much room here: its shard's part of what its process can do, never less than it holds.
local function resize(owner, capacity)
  local info = fleet_of(owner)
  if not info or info.role ~= 'worker' then return capacity end
  capacity = math.max(capacity, call('SCARD', P .. 'w:' .. owner))
  local more = capacity - info.capacity
  if more == 0 then return capacity end
  info.capacity = capacity
  call('HSET', P .. 'fleet', owner, cjson.encode(info))
  for _, pool in ipairs(info.pools) do
    count_limit('c:' .. pool, more)
    for agent, serial in pairs(info.agents) do
      call('HSET', P .. 'serve:' .. pool .. ':' .. agent, owner, serial .. ':' .. capacity)
      recount(pool, agent)
      if more > 0 then wake_one('a/' .. agent) end
    end
    if more > 0 then wake_one('p/' .. pool) end
  end
  return capacity
end

local function waiters(res)
  local n = 0
  for _, flow in ipairs(call('SRANDMEMBER', P .. 'blocked:' .. res, 10)) do n = n + call('ZCARD', flow_key(flow)) end
  return n
end

-- How many sessions wait here for room that this owner could give, as far as a short look tells.
local function short_of_room(owner)
  local info, n = fleet_of(owner), 0
  for _, pool in ipairs(info and info.pools or {}) do
    n = n + waiters('p/' .. pool)
    for agent in pairs(info.agents or {}) do n = n + waiters('a/' .. agent) end
  end
  return n
end
