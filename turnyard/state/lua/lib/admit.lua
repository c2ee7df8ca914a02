-- admit(): lock a session, take a slot, hand the turn to a pool's workers, while there is room for it.
local BEGIN_BY, LOOK_AHEAD, ADMIT = 3000, 16, 20

-- The end of a list's name that all who may run a turn of this serial and schema serve, and nobody else; nil when none has room.
-- It is the lowest serial alive among them.
local function list_with_room(pool, agent, serial, schema, apart)
  local room, lowest = 0, nil
  local serve = call('HGETALL', P .. 'serve:' .. pool .. ':' .. agent)
  for i = 1, #serve, 2 do
    local s, capacity = string.match(serve[i + 1], '^(%d+):(%d+)$')
    s = tonumber(s)
    if s >= serial and (schema == 1 or tonumber(call('HGET', P .. 'reads:' .. pool .. ':' .. agent, serve[i]) or 1) >= schema) then
      room = room + tonumber(capacity) - call('SCARD', P .. 'w:' .. serve[i])
      lowest = math.min(lowest or s, s)
    end
  end
  return room > 0 and lowest .. (apart and '~' .. schema or '') or nil
end

-- The resource that keeps this session from running, or nil.
local function obstacle(h)
  local res = resources(h)
  for i = 1, 3 do
    local most = limit('l:' .. res[i])
    if most and call('SCARD', P .. 'run:' .. res[i]) >= tonumber(most) then return res[i] end
  end
  if call('SCARD', P .. 'run:' .. res[3]) >= tonumber(limit('c:' .. h.po) or 0) then return res[3] end
  if call('SCARD', P .. 'run:' .. res[2]) >= tonumber(limit('ca:' .. h.po .. ':' .. h.ag) or 0) then return res[2] end
  return nil
end

local function block(flow, res)
  call('ZREM', FLOWS, flow)
  call('SADD', P .. 'blocked:' .. res, flow)
  call('SADD', P .. 'blocked', res)
  set_limit('b:' .. flow, res)
  count_limit('nb', 1)
end

local function room_of(res)
  local most = limit('l:' .. res)
  if res:sub(1, 2) == 'p/' then
    local c = tonumber(limit('c:' .. res:sub(3)) or 0)
    most = math.min(tonumber(most or c), c)
  end
  return not most or call('SCARD', P .. 'run:' .. res) < tonumber(most)
end

-- A turn goes on in the schema that it began in; the next one is written in the newest that may be written.
local function schema_of(h) return h.tu == '' and math.max(h.sc, tonumber(limit('schema') or 1)) or h.sc end

-- The first session of the flow that a worker may run now: ghosts are dropped, a turn that needs a newer worker is passed over.
local function candidate(flow)
  for _, sid in ipairs(call('ZRANGE', flow_key(flow), 0, LOOK_AHEAD - 1)) do
    local h = load(sid)
    if h.st ~= 'ready' or flow_of(h) ~= flow then
      call('ZREM', flow_key(flow), sid)
    else
      want_for(h)
      local res = obstacle(h)
      if res then return nil, h, res end
      local schema = schema_of(h)
      local apart = schema > tonumber(limit('hs:' .. h.po .. ':' .. h.ag) or 1)
      local newer = apart or h.tv > tonumber(limit('lo:' .. h.po .. ':' .. h.ag))
      local list = newer and list_with_room(h.po, h.ag, h.tv, schema, apart) or '0'
      if not newer or list ~= '0' then return h, h, nil, list end
    end
  end
  return nil
end

local function assign(flow, h, start, place)
  local f = flow_key(flow)
  call('ZREM', f, h.sid)
  local est = tonumber(limit('last:' .. h.tn) or 1)
  local tag = start + est / tonumber(limit('wt:' .. h.tn) or 1)
  set_limit('vt:' .. h.tn, tag)
  set_limit('v', math.max(start, tonumber(limit('v') or 0)))
  if call('ZCARD', f) == 0 then call('ZREM', FLOWS, flow) else call('ZADD', FLOWS, tag, flow) end
  add(h, 'ep', 1)
  set(h, 'sc', schema_of(h))
  set(h, 'st', 'assigned')
  set(h, 'ow', '')
  set(h, 'sl', NOW)
  set(h, 'es', est)
  call('ZADD', RUNNING, NOW + tonumber(limit('begin_by') or BEGIN_BY), h.sid)
  local res = resources(h)
  for i = 1, 3 do call('SADD', P .. 'run:' .. res[i], h.sid) end
  local list = P .. 'turns:' .. h.po .. ':' .. h.ag .. '@' .. place
  call('RPUSH', list, h.sid .. ' ' .. h.ep)
  -- The workers of this version may all be gone by now, and with them whoever would take it.
  if place ~= '0' then call('EXPIRE', list, 3600) end
end

-- Where one was served or turned away, the next waiter of each resource that still has room is looked at.
local function wake_next(h, except)
  if tonumber(limit('nb') or 0) == 0 then return end
  for _, r in ipairs(resources(h)) do
    if r ~= except and room_of(r) then wake_one(r) end
  end
end

-- At most ADMIT in one call, to keep it short; a wake entry on ingress asks for the rest.
local function admit()
  local admitted = 0
  local room
  for _ = 1, 128 do
    if admitted >= ADMIT then
      call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake')
      break
    end
    local top = call('ZRANGE', FLOWS, 0, 0, 'WITHSCORES')
    local flow = top[1]
    if not flow then break end
    room = room or tonumber(limit('max') or 200) - call('ZCARD', RUNNING)
    if admitted >= room then break end
    local start = start_of(tenant_of(flow))
    local h, first, res, place = candidate(flow)
    if start > tonumber(top[2]) + 1e-6 and (call('ZCARD', FLOWS) > 1) and h then
      call('ZADD', FLOWS, start, flow)
      local again = call('ZRANGE', FLOWS, 0, 0)
      if again[1] ~= flow then h = nil; first = nil; res = 'later' end
    end
    if h then
      assign(flow, h, start, place)
      wake_next(h)
      admitted = admitted + 1
    elseif res ~= 'later' then
      if first then
        block(flow, res)
        wake_next(first, res)
      elseif call('ZCARD', flow_key(flow)) == 0 then
        call('ZREM', FLOWS, flow)
      else
        local h0 = load(call('ZRANGE', flow_key(flow), 0, 0)[1])
        block(flow, 'a/' .. h0.ag)
      end
    end
  end
  return admitted
end
