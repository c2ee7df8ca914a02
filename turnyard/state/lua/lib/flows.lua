-- Who may run next: flows by virtual start, their sessions by priority and arrival, and what blocks them.
-- limits: max, v, arr, front, blocked count, per tenant vt: last: wt:, per resource l:, per flow b:, per pool c:, per pool and agent lo:.
local LIMITS = P .. 'limits'
local FLOWS = P .. 'flows'
local RUNNING = P .. 'running'

local function flow_of(h) return h.tn .. '/' .. h.ag end
local function flow_key(f) return P .. 'f:' .. f end

local function start_of(tenant)
  local v = call('HMGET', LIMITS, 'v', 'vt:' .. tenant)
  return math.max(tonumber(v[1] or 0), tonumber(v[2] or 0))
end

local function offer(flow)
  if call('HEXISTS', LIMITS, 'b:' .. flow) == 0 then
    call('ZADD', FLOWS, 'NX', start_of(string.match(flow, '^[^/]*')), flow)
  end
end

local function wakes(h) return h.iw > 0 end

local function due_item(h)
  if h.nw == 0 and h.nd == 0 then return nil end
  for _, it in ipairs(call('XRANGE', next_key(h.sid), '-', '+')) do
    local f = {}
    for i = 1, #it[2], 2 do f[it[2][i]] = it[2][i + 1] end
    if f.w == '1' and tonumber(f.du or 0) <= NOW then return f, it[1] end
  end
  return nil
end

local function next_due(h) return h.nw > 0 or (h.nd > 0 and due_item(h) ~= nil) end

local function to_ready(h, front)
  if h.pz == '1' and not cancelled(h) then
    set(h, 'st', h.tu ~= '' and 'parked' or 'idle')
    return
  end
  if h.st ~= 'ready' then set(h, 'rs', NOW) end
  set(h, 'st', 'ready')
  local score = call('HINCRBY', LIMITS, front and 'front' or 'arr', front and -1 or 1) - h.pr * 1e9
  call('ZADD', flow_key(flow_of(h)), score, h.sid)
  offer(flow_of(h))
end

local function wake(h)
  if h.st == 'idle' and (wakes(h) or next_due(h)) then
    to_ready(h)
  elseif h.st == 'parked' and h.aw == 0 then
    to_ready(h)
  end
end

local function leave_flow(h)
  local flow = flow_of(h)
  call('ZREM', flow_key(flow), h.sid)
  if call('ZCARD', flow_key(flow)) == 0 then call('ZREM', FLOWS, flow) end
end

-- Put back one flow that waits for `res`; a flow that has nothing left to run is passed over.
local function wake_one(res)
  local key = P .. 'blocked:' .. res
  for _ = 1, 100 do
    local flow = call('SPOP', key)
    if not flow then
      call('SREM', P .. 'blocked', res)
      return
    end
    call('HDEL', LIMITS, 'b:' .. flow)
    if call('ZCARD', flow_key(flow)) > 0 then
      offer(flow)
      return
    end
  end
end

local function resources(h)
  return {'t/' .. h.tn, 'a/' .. h.ag, 'p/' .. h.po}
end

-- Give the slot back: charge what was used, free the resources, wake one waiter of each.
local function release(h)
  if call('ZREM', RUNNING, h.sid) == 0 then return end
  if h.ow ~= '' then call('SREM', P .. 'w:' .. h.ow, h.sid) end
  local res = resources(h)
  for i = 1, #res do call('SREM', P .. 'run:' .. res[i], h.sid) end
  local v = call('HMGET', LIMITS, 'vt:' .. h.tn, 'wt:' .. h.tn, 'v')
  local used = math.max(1, NOW - h.sl)
  local tag = tonumber(v[1] or v[3] or 0) + (used - h.es) / tonumber(v[2] or 1)
  call('HSET', LIMITS, 'vt:' .. h.tn, tag, 'last:' .. h.tn, used)
  if call('EXISTS', P .. 'blocked') == 1 then
    for i = 1, #res do wake_one(res[i]) end
  end
end
