-- Who may run next: flows by virtual start, their sessions by priority and arrival, and what blocks them.
-- limits: max, begin_by, quantum, v clock of shares, arr and front counters, nb blocked flows, per tenant vt: tag, last: slot time
-- and wt: weight, per resource l: limit, per flow b: what blocks it and n: that only turns for a newer worker wait in it, per pool c: capacity, per pool and agent
-- lo: lowest live serial, ca: capacity and hs: newest schema that all know, per agent po: its pools; schema is the one that new data is written in.
-- From so many lost hosts on, a turn runs alone.
local ALONE_FROM = 2

-- A call reads a limit once and writes what it changed at its end.
local function want_limits(...)
  local names, ask = {...}, {}
  for i = 1, #names do
    if LIM[names[i]] == nil then ask[#ask + 1] = names[i] end
  end
  if #ask == 0 then return end
  local v = call('HMGET', LIMITS, unpack(ask))
  for i = 1, #ask do LIM[ask[i]] = v[i] or false end
end

local function limit(name)
  if LIM[name] == nil then LIM[name] = call('HGET', LIMITS, name) or false end
  return LIM[name]
end

local function set_limit(name, value)
  LIM[name] = value
  LIM_DIRTY[name] = true
end

local function count_limit(name, n)
  set_limit(name, tonumber(limit(name) or 0) + n)
  return LIM[name]
end

-- How long the n-th relay of a lifted call may lie until it is relayed again: it doubles.
local function relay_wait(n) return tonumber(limit('relay') or 30000) * 2 ^ (math.min(n, 9) - 1) end

local function save_limits()
  local put, drop = {}, {}
  for name in pairs(LIM_DIRTY) do
    if LIM[name] then
      put[#put + 1] = name
      put[#put + 1] = LIM[name]
    else
      drop[#drop + 1] = name
    end
  end
  if #put > 0 then call('HSET', LIMITS, unpack(put)) end
  if #drop > 0 then call('HDEL', LIMITS, unpack(drop)) end
  LIM_DIRTY = {}
end

-- The end of every call: what it changed in memory becomes so.
local function save_all()
  for _, h in pairs(HEADS) do
    if h.rows or h.un then save_rows(h) end
    save(h)
  end
  write_out()
  save_limits()
end

-- A turn that may have killed its worker waits in a flow and for a pool of its own. The level stands while it waits and runs.
local function isolated(name, h) return h.il == 0 and name or name .. '!' .. h.il end
local function flow_of(h) return isolated(h.tn .. '/' .. h.ag, h) end
local function pool_of(h) return isolated(h.po, h) end
local function flow_key(f) return P .. 'f:' .. f end

local function start_of(tenant)
  want_limits('v', 'vt:' .. tenant)
  return math.max(tonumber(limit('v') or 0), tonumber(limit('vt:' .. tenant) or 0))
end

local function tenant_of(flow) return string.match(flow, '^[^/]*') end

-- All that admission of this session asks of limits, in one read.
local function want_for(h)
  local pool = pool_of(h)
  want_limits('v', 'vt:' .. h.tn, 'last:' .. h.tn, 'wt:' .. h.tn, 'l:t/' .. h.tn, 'l:a/' .. h.ag, 'l:p/' .. pool, 'c:' .. pool,
    'lo:' .. pool .. ':' .. h.ag, 'hs:' .. pool .. ':' .. h.ag, 'schema', 'ca:' .. h.po .. ':' .. h.ag, 'ca:' .. h.po .. '!1:' .. h.ag,
    'ca:' .. h.po .. '!2:' .. h.ag, 'b:' .. flow_of(h), 'po:' .. h.ag, 'arr', 'front', 'max', 'begin_by', 'nb')
end

local function unblock(flow)
  set_limit('b:' .. flow, false)
  set_limit('n:' .. flow, false)
  count_limit('nb', -1)
end

-- What blocks a flow is in everybody's way, unless it lacks a newer worker: who comes then may be one that any worker runs.
local function offer(flow)
  if OFFERED[flow] then return end
  local res = limit('b:' .. flow)
  if res then
    if not limit('n:' .. flow) then return end
    call('SREM', P .. 'blocked:' .. res, flow)
    unblock(flow)
  end
  call('ZADD', FLOWS, 'NX', start_of(tenant_of(flow)), flow)
  OFFERED[flow] = true
end

local function take_off(flow)
  call('ZREM', FLOWS, flow)
  OFFERED[flow] = nil
end

local function wakes(h) return h.iw > 0 end

local function due_item(h)
  if h.nw == 0 and h.nd == 0 then return nil end
  for _, it in ipairs(items(next_key(h.sid))) do
    if it.w == '1' and tonumber(it.du or 0) <= NOW then return it end
  end
  return nil
end

-- The deadline that wakes a session for a delayed item: one per item, one per collect window.
local function delay_member(h, it) return 's!' .. h.sid .. '!' .. (it.g and 'c' .. it.st or it.m) end

-- A deadline that passed while the turn ran is gone; where the clock went back since, its item is not due and must have it again.
local function keep_delays(h)
  for _, it in ipairs(items(next_key(h.sid))) do
    if it.du then call('ZADD', DEADLINES, 'NX', it.du, delay_member(h, it)) end
  end
end

local function next_due(h) return h.nw > 0 or (h.nd > 0 and due_item(h) ~= nil) end

-- Closing runs nothing of the app, so any child may do it.
local function isolation(h)
  if cancelled(h) then return 0 end
  return h.ls >= ALONE_FROM and 2 or h.lv
end

local function to_ready(h, front)
  if h.pz == '1' and not cancelled(h) then
    set(h, 'st', h.tu ~= '' and 'parked' or 'idle')
    return
  end
  if h.st ~= 'ready' then set(h, 'rs', NOW) end
  set(h, 'il', isolation(h))
  set(h, 'st', 'ready')
  want_for(h)
  local score = count_limit(front and 'front' or 'arr', front and -1 or 1) - h.pr * 1e9
  later('ZADD', flow_key(flow_of(h)), score, h.sid)
  offer(flow_of(h))
end

local function wake(h)
  if h.st == 'idle' and (wakes(h) or next_due(h)) then
    to_ready(h)
  elseif h.st == 'parked' and h.aw == 0 then
    to_ready(h)
  elseif h.st == 'idle' and h.nd > 0 then
    keep_delays(h)
  end
end

local function leave_flow(h)
  local flow = flow_of(h)
  write_out()
  call('ZREM', flow_key(flow), h.sid)
  if call('ZCARD', flow_key(flow)) == 0 then take_off(flow) end
end

-- Put back one flow that waits for `res`; a flow that has nothing left to run is passed over.
local function wake_one(res)
  local key = P .. 'blocked:' .. res
  write_out()
  for _ = 1, 100 do
    local flow = call('SPOP', key)
    if not flow then
      call('SREM', P .. 'blocked', res)
      return
    end
    unblock(flow)
    if call('ZCARD', flow_key(flow)) > 0 then
      offer(flow)
      return
    end
  end
end

-- How many slots a resource has lent: read once, and counted on from there.
local function taken(res)
  if not TAKEN[res] then TAKEN[res] = call('SCARD', P .. 'run:' .. res) end
  return TAKEN[res]
end

-- A flow that waits and has room hears of it before the next tick.
local function leave_wake()
  if call('EXISTS', FLOWS) == 1 then call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake') end
end

local function resources(h)
  return {'t/' .. h.tn, 'a/' .. h.ag, 'p/' .. pool_of(h)}
end

-- Whether anybody waits for what this session holds: a slot, or one of its resources.
local function others_wait(h)
  local res = resources(h)
  return call('EXISTS', FLOWS, P .. 'blocked:' .. res[1], P .. 'blocked:' .. res[2], P .. 'blocked:' .. res[3]) > 0
end

-- Give the slot back: charge what was used, free the resources, wake one waiter of each.
local function release(h)
  if call('ZREM', RUNNING, h.sid) == 0 then return end
  if h.st == 'running' and h.tu ~= '' then set(h, 'ac', ran(h)) end
  if h.ow ~= '' then call('SREM', P .. 'w:' .. h.ow, h.sid) end
  if h.il == 2 then call('HDEL', P .. 'quarantine', h.sid) end
  local res = resources(h)
  for i = 1, #res do
    call('SREM', P .. 'run:' .. res[i], h.sid)
    TAKEN[res[i]] = nil
  end
  want_limits('v', 'vt:' .. h.tn, 'wt:' .. h.tn, 'nb')
  local used = math.max(1, NOW - h.sl)
  local tag = tonumber(limit('vt:' .. h.tn) or limit('v') or 0) + (used - h.es) / tonumber(limit('wt:' .. h.tn) or 1)
  set_limit('vt:' .. h.tn, tag)
  set_limit('last:' .. h.tn, used)
  if tonumber(limit('nb') or 0) > 0 then
    for i = 1, #res do wake_one(res[i]) end
  end
end
