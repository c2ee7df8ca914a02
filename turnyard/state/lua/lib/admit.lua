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

local function capacity_of(pool, agent) return tonumber(limit('ca:' .. pool .. ':' .. agent) or 0) end

-- The resource that keeps this session from running, or nil.
local function obstacle(h)
  local res = resources(h)
  for i = 1, 3 do
    local most = limit('l:' .. res[i])
    if most and taken(res[i]) >= tonumber(most) then return res[i] end
  end
  local pool = pool_of(h)
  if capacity_of(pool, h.ag) == 0 then return h.il > 0 and res[3] or res[2] end
  if taken(res[3]) >= tonumber(limit('c:' .. pool) or 0) then return res[3] end
  -- The agent's use is counted whatever the isolation, so its capacity is, too.
  local capacity = capacity_of(h.po, h.ag) + capacity_of(h.po .. '!1', h.ag) + capacity_of(h.po .. '!2', h.ag)
  if h.il == 0 and taken(res[2]) >= capacity then return res[2] end
  return nil
end

local function block(flow, res)
  take_off(flow)
  call('SADD', P .. 'blocked:' .. res, flow)
  call('SADD', P .. 'blocked', res)
  set_limit('b:' .. flow, res)
  count_limit('nb', 1)
end

local function room_of(res)
  local most = limit('l:' .. res)
  if res:sub(1, 2) == 'p/' then
    -- Who waits for a pool that nobody works in is looked at again: it may have moved.
    if tonumber(limit('c:' .. res:match('^p/([^!]*)')) or 0) == 0 then return true end
    local c = tonumber(limit('c:' .. res:sub(3)) or 0)
    most = math.min(tonumber(most or c), c)
  end
  return not most or taken(res) < tonumber(most)
end

-- A turn goes on in the schema that it began in; the next one is written in the newest that may be written.
local function schema_of(h) return h.tu == '' and math.max(h.sc, tonumber(limit('schema') or 1)) or h.sc end

-- Who waits in a flow, as far as this admission has read it: who is taken leaves the list now and the key at the end of the call.
local function queue_of(queues, flow)
  local q = queues[flow]
  if not q or q.cut and #q < LOOK_AHEAD and q.passed == #q then
    write_out()
    q = call('ZRANGE', flow_key(flow), 0, LOOK_AHEAD - 1)
    q.cut, q.passed = #q == LOOK_AHEAD, 0
    queues[flow] = q
  end
  return q
end

local function take_out(q, flow, at)
  later('ZREM', flow_key(flow), table.remove(q, at))
end

-- Whether a worker may run the session's turn now, and the end of the name of the list that it reads.
local function place_of(h)
  local schema, pool = schema_of(h), pool_of(h)
  local apart = schema > tonumber(limit('hs:' .. pool .. ':' .. h.ag) or 1)
  local newer = apart or least_serial(h) > tonumber(limit('lo:' .. pool .. ':' .. h.ag))
  if not newer then return '0' end
  return list_with_room(pool, h.ag, least_serial(h), schema, apart)
end

-- An agent that nobody serves in the session's pool any more, but somebody in another, has moved there.
local function follow_agent(h)
  local pools = split(limit('po:' .. h.ag))
  if #pools == 0 or #without(pools, h.po) < #pools then return end
  set(h, 'po', pools[#pools])
  want_for(h)
end

-- The first session of the flow that a worker may run now: ghosts are dropped, a turn that needs a newer worker is passed over.
local function candidate(queues, flow)
  local q = queue_of(queues, flow)
  while q.passed < #q do
    local at = q.passed + 1
    local h = load(q[at])
    if h.st ~= 'ready' or flow_of(h) ~= flow then
      take_out(q, flow, at)
    else
      want_for(h)
      follow_agent(h)
      local res = obstacle(h)
      if res then return nil, h, res end
      local place = place_of(h)
      if place then return h, h, nil, place end
      q.passed = at
    end
    q = queue_of(queues, flow)
  end
  return nil
end

-- Answers the flow's new tag, nil when nobody is left in it.
local function assign(queues, flow, h, start, place)
  local est = tonumber(limit('last:' .. h.tn) or 1)
  local tag = start + est / tonumber(limit('wt:' .. h.tn) or 1)
  set_limit('vt:' .. h.tn, tag)
  set_limit('v', math.max(start, tonumber(limit('v') or 0)))
  take_out(queues[flow], flow, queues[flow].passed + 1)
  add(h, 'ep', 1)
  set(h, 'sc', schema_of(h))
  set(h, 'st', 'assigned')
  set(h, 'ow', '')
  set(h, 'sl', NOW)
  set(h, 'es', est)
  later('ZADD', RUNNING, NOW + tonumber(limit('begin_by') or BEGIN_BY), h.sid)
  for _, res in ipairs(resources(h)) do
    later('SADD', P .. 'run:' .. res, h.sid)
    if TAKEN[res] then TAKEN[res] = TAKEN[res] + 1 end
  end
  local list = P .. 'turns:' .. pool_of(h) .. ':' .. h.ag .. '@' .. place
  later('RPUSH', list, h.sid .. ' ' .. h.ep)
  -- The workers of this version may all be gone by now, and with them whoever would take it.
  if place ~= '0' then later_once('EXPIRE', list, 3600) end
  return #queue_of(queues, flow) > 0 and tag or nil
end

-- Where one was served or turned away, the next waiter of each resource that still has room is looked at.
local function wake_next(h, except)
  if tonumber(limit('nb') or 0) == 0 then return end
  for _, r in ipairs(resources(h)) do
    if r ~= except and room_of(r) then wake_one(r) end
  end
end

local function first_flow()
  local top = call('ZRANGE', FLOWS, 0, 1, 'WITHSCORES')
  return top[1], tonumber(top[2]), tonumber(top[4])
end

-- Its tenant was charged since the flow was scored: give it its place, and tell whether it is still the first.
local function still_first(flow, start)
  call('ZADD', FLOWS, start, flow)
  return call('ZRANGE', FLOWS, 0, 0)[1] == flow
end

-- Nobody of the flow can run now: it waits for what is in its way.
local function turn_away(queues, flow, first, res)
  if first then
    block(flow, res)
    wake_next(first, res)
  elseif #queues[flow] == 0 then
    take_off(flow)
  else
    local h = load(queues[flow][1])
    block(flow, h.il > 0 and 'p/' .. pool_of(h) or 'a/' .. h.ag)
    set_limit('n:' .. flow, 1)
  end
end

-- At most ADMIT in one call, to keep it short; a wake entry on ingress asks for the rest.
local function admit()
  write_out()
  local admitted, queues, room = 0, {}, nil
  local flow, score, second
  local moved = false
  for _ = 1, 128 do
    if admitted >= ADMIT then
      call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake')
      break
    end
    if not flow then flow, score, second = first_flow() end
    room = room or flow and tonumber(limit('max') or 200) - call('ZCARD', RUNNING)
    if not flow or admitted >= room then break end
    local start = start_of(tenant_of(flow))
    local h, first, res, place = candidate(queues, flow)
    if not h then
      turn_away(queues, flow, first, res)
      flow, moved = nil, false
    elseif second and start > score + 1e-6 and not still_first(flow, start) then
      flow = nil
    else
      score = assign(queues, flow, h, start, place)
      admitted = admitted + 1
      -- A flow that stays the first is put in its place once, at the end.
      moved = score and tonumber(limit('nb') or 0) == 0 and (not second or score < second)
      if not moved then
        if score then call('ZADD', FLOWS, score, flow) else take_off(flow) end
        wake_next(h)
        flow = nil
      end
    end
  end
  if flow and moved then call('ZADD', FLOWS, score, flow) end
  return admitted
end
