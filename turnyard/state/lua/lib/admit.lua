-- admit(): lock a session, take a slot, hand the turn to a pool's workers, while there is room for it.
local BEGIN_BY, LOOK_AHEAD = 3000, 16

local function serial_room(pool, agent, serial)
  local room = 0
  local serve = call('HGETALL', P .. 'serve:' .. pool .. ':' .. agent)
  for i = 1, #serve, 2 do
    local s, capacity = string.match(serve[i + 1], '^(%d+):(%d+)$')
    if tonumber(s) >= serial then room = room + tonumber(capacity) - call('SCARD', P .. 'w:' .. serve[i]) end
  end
  return room
end

-- The resource that keeps this session from running, or nil. lim: l: of tenant, agent, pool; c: of the pool; lo: of the agent.
local function obstacle(h, lim)
  local res = resources(h)
  for i = 1, 3 do
    if lim[i] and call('SCARD', P .. 'run:' .. res[i]) >= tonumber(lim[i]) then return res[i] end
  end
  if not lim[5] then return res[2] end
  if call('SCARD', P .. 'run:' .. res[3]) >= tonumber(lim[4] or 0) then return res[3] end
  return nil
end

local function block(flow, h, res)
  call('ZREM', FLOWS, flow)
  call('SADD', P .. 'blocked:' .. res, flow)
  call('SADD', P .. 'blocked', res)
  call('HSET', LIMITS, 'b:' .. flow, res)
end

local function room_of(res)
  local limit = call('HGET', LIMITS, 'l:' .. res)
  if res:sub(1, 2) == 'p/' then
    local c = tonumber(call('HGET', LIMITS, 'c:' .. res:sub(3)) or 0)
    limit = math.min(tonumber(limit or c), c)
  end
  return not limit or call('SCARD', P .. 'run:' .. res) < tonumber(limit)
end

-- The first session of the flow that a worker may run now: ghosts are dropped, a turn that needs a newer worker is passed over.
local function candidate(flow)
  for _, sid in ipairs(call('ZRANGE', flow_key(flow), 0, LOOK_AHEAD - 1)) do
    local h = load(sid)
    if h.st ~= 'ready' or flow_of(h) ~= flow then
      call('ZREM', flow_key(flow), sid)
    else
      local lim = call('HMGET', LIMITS, 'l:t/' .. h.tn, 'l:a/' .. h.ag, 'l:p/' .. h.po, 'c:' .. h.po, 'lo:' .. h.po .. ':' .. h.ag)
      local res = obstacle(h, lim)
      if res then return nil, h, res end
      local newer = h.tv > tonumber(lim[5])
      if not newer or serial_room(h.po, h.ag, h.tv) > 0 then return h, h, nil, newer and h.tv or 0 end
    end
  end
  return nil
end

local function assign(flow, h, start, serial)
  local f = flow_key(flow)
  call('ZREM', f, h.sid)
  local t = call('HMGET', LIMITS, 'last:' .. h.tn, 'wt:' .. h.tn, 'begin_by', 'v')
  local est = tonumber(t[1] or 1)
  local tag = start + est / tonumber(t[2] or 1)
  call('HSET', LIMITS, 'vt:' .. h.tn, tag, 'v', math.max(start, tonumber(t[4] or 0)))
  if call('ZCARD', f) == 0 then call('ZREM', FLOWS, flow) else call('ZADD', FLOWS, tag, flow) end
  add(h, 'ep', 1)
  set(h, 'st', 'assigned')
  set(h, 'ow', '')
  set(h, 'sl', NOW)
  set(h, 'es', est)
  save(h)
  call('ZADD', RUNNING, NOW + tonumber(t[3] or BEGIN_BY), h.sid)
  local res = resources(h)
  for i = 1, 3 do call('SADD', P .. 'run:' .. res[i], h.sid) end
  call('RPUSH', P .. 'turns:' .. h.po .. ':' .. h.ag .. '@' .. serial, h.sid .. ' ' .. h.ep)
end

-- Nothing runs and nothing waits: the clock of shares catches up and all tags go.
local function sweep_tags()
  local all, v, gone = call('HGETALL', LIMITS), 0, {}
  for i = 1, #all, 2 do
    local tenant = string.match(all[i], '^vt:(.*)$')
    if tenant then
      v = math.max(v, tonumber(all[i + 1]))
      gone[#gone + 1] = all[i]
      gone[#gone + 1] = 'last:' .. tenant
    end
  end
  if #gone > 0 then
    call('HDEL', LIMITS, unpack(gone))
    call('HSET', LIMITS, 'v', v)
  end
end

local function admit()
  local admitted = 0
  local max = tonumber(call('HGET', LIMITS, 'max') or 200)
  for _ = 1, 128 do
    if call('ZCARD', RUNNING) >= max or admitted >= 64 then break end
    local top = call('ZRANGE', FLOWS, 0, 0, 'WITHSCORES')
    local flow = top[1]
    if not flow then break end
    local start = start_of(string.match(flow, '^[^/]*'))
    local h, first, res, serial = candidate(flow)
    if start > tonumber(top[2]) + 1e-6 and (call('ZCARD', FLOWS) > 1) and h then
      call('ZADD', FLOWS, start, flow)
      local again = call('ZRANGE', FLOWS, 0, 0)
      if again[1] ~= flow then h = nil; first = nil; res = 'later' end
    end
    if h then
      assign(flow, h, start, serial)
      admitted = admitted + 1
    elseif res ~= 'later' then
      if first then
        block(flow, first, res)
        for _, r in ipairs(resources(first)) do
          if r ~= res and room_of(r) then wake_one(r) end
        end
      elseif call('ZCARD', flow_key(flow)) == 0 then
        call('ZREM', FLOWS, flow)
      else
        local h0 = load(call('ZRANGE', flow_key(flow), 0, 0)[1])
        block(flow, h0, 'a/' .. h0.ag)
      end
    end
  end
  return admitted
end
