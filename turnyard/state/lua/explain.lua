-- All that says why a session stands where it stands, read at one moment. Writes nothing.
--
-- KEYS  ingress  names the shard. Others carry its hash tag
-- ARGV  session key
-- Returns JSON (see standing.py), or nothing when there is no such session. Bounded: a session's own rows and queues, up to 200 entries
--       of ingress, the workers of one agent.
-- A lost reply costs nothing: ask again.
local LOOK = 200
local LANES = {'arq', 'session', 'webhook'}

local function fields_of(raw)
  local f = {}
  for i = 1, #raw, 2 do f[raw[i]] = raw[i + 1] end
  return f
end

-- Who an incarnation is, and until when its lease stands; -1: it is declared dead, nothing: it is gone.
local function who(owner)
  if not owner or owner == '' then return nil end
  local lease, info = call('ZSCORE', WORKERS, owner), fleet_of(owner) or {}
  if lease == '-inf' then lease = -1 end
  return {worker = owner, host = info.host, pid = info.pid, lease = lease and tonumber(lease) or nil, known = lease and true or false}
end

-- What waits outside, and what the open turn runs here.
local function calls_of(h)
  local out, seen = {}, {}
  local function add_call(ord, c)
    local r = not seen[c] and row(h, ord, c)
    seen[c] = true
    if not r or r.o then return end
    -- A delay is no call: nothing in the log declared it.
    local raw = r.q and call('XRANGE', log_key(h, ord), r.q .. '-0', r.q .. '-0')[1]
    local f = raw and fields_of(raw[2]) or {}
    local body = f.b and cjson.decode(f.b) or {}
    local asked = (r.k == 'approval' or r.k == 'question') and call('HGET', calls_key(h, ord), c .. ':q') or nil
    out[#out + 1] = {c = c, ord = tonumber(ord), asked = asked, k = r.k, s = r.s, aw = r.aw, tool = body.name or '', since = r.si or tonumber(f.at), dl = r.dl, re = r.re, tr = r.tr, task = who(r.tk), mo = r.mo,
      nb = r.nb, un = (r.wn or 0) - (r.wc or 0), pg = r.pg and call('HGET', calls_key(h, ord), c .. ':g') or nil,
      open_turn = r.t == h.tu}
  end
  for ord = 0, h.sn - 1 do
    for _, c in ipairs(waiting(h, tostring(ord))) do add_call(tostring(ord), c) end
  end
  for _, c in ipairs(split(h.pe)) do add_call(h.ts, c) end
  return out
end

local function queue_of(key)
  local out = {n = 0, wake = 0}
  for _, it in ipairs(items(key)) do
    out.n = out.n + 1
    if it.w == '1' and not it.du then out.wake = out.wake + 1 end
    if it.w == '1' and it.at then out.oldest = math.min(out.oldest or tonumber(it.at), tonumber(it.at)) end
    if it.w == '1' and it.du and tonumber(it.du) < (out.due or math.huge) then
      out.due, out.window = tonumber(it.du), it.g and true or false
    end
  end
  return out
end

-- The session's own events that nobody has applied yet, among the first that wait.
local function backlog_of(h)
  local mine, ahead, oldest = 0, 0, nil
  for i, raw in ipairs(call('XRANGE', KEYS[1], '-', '+', 'COUNT', LOOK)) do
    if fields_of(raw[2]).sid == h.sid then
      mine = mine + 1
      if not oldest then oldest, ahead = tonumber(string.match(raw[1], '^%d+')), i - 1 end
    end
  end
  return {all = call('XLEN', KEYS[1]), mine = mine, ahead = ahead, oldest = oldest}
end

local function workers_of(pool, agent)
  local out, serve = {}, call('HGETALL', P .. 'serve:' .. pool .. ':' .. agent)
  for i = 1, math.min(#serve, 2 * LOOK), 2 do
    local s, capacity = string.match(serve[i + 1], '^(%d+):(%d+)$')
    out[#out + 1] = {serial = tonumber(s), free = tonumber(capacity) - call('SCARD', P .. 'w:' .. serve[i]),
      schema = tonumber(call('HGET', P .. 'reads:' .. pool .. ':' .. agent, serve[i]) or 1)}
  end
  return out
end

local function room_for(h)
  local flow, pool, out = flow_of(h), pool_of(h), {}
  for i, res in ipairs(resources(h)) do
    out[i] = {name = res, used = call('SCARD', P .. 'run:' .. res), limit = tonumber(limit('l:' .. res) or nil)}
  end
  return {
    flow = flow, pool = pool, place = call('ZRANK', flow_key(flow), h.sid) or nil, flows_ahead = call('ZRANK', FLOWS, flow) or nil,
    blocked = limit('b:' .. flow) or nil, used = call('ZCARD', RUNNING), max = tonumber(limit('max') or 200), resources = out,
    pool_capacity = tonumber(limit('c:' .. pool) or 0), home_capacity = tonumber(limit('c:' .. h.po) or 0), workers = workers_of(pool, h.ag), schema = schema_of(h),
    agent_capacity = tonumber(limit('ca:' .. pool .. ':' .. h.ag) or 0),
  }
end

-- Lanes in which the session owes something, and until when each is held.
local function lanes_of(h)
  local out, names = {}, {h.pf}
  for _, lane in ipairs(LANES) do names[#names + 1] = lane end
  for _, lane in ipairs(names) do
    for ord = math.max(0, h.sn - 2), h.sn - 1 do
      local due = lane ~= '' and call('ZSCORE', P .. 'out:' .. lane, h.sid .. '.' .. ord)
      if due then
        local cursor = tonumber(h['sent:' .. lane .. ':' .. ord] or 0)
        local first = call('XRANGE', log_key(h, tostring(ord)), '(' .. cursor .. '-0', '+', 'COUNT', 1)[1]
        out[#out + 1] = {lane = lane, due = tonumber(due), since = first and tonumber(fields_of(first[2]).at) or nil, sent = cursor, last = tonumber(h['sq:' .. ord] or 0)}
      end
    end
  end
  return out
end

local function main()
  local h = load(ARGV[1])
  if h.new then return false end
  want_for(h)
  local overdue = call('ZSCORE', DEADLINES, 'x!' .. h.sid)
  return cjson.encode({
    now = NOW, tick = tonumber(limit('tick') or nil), amnesty = tonumber(limit('amnesty') or 0), quantum = tonumber(limit('quantum') or 30000),
    id = h.id, tn = h.tn, ag = h.ag, po = h.po, st = h.st, tu = h.tu, rv = h.rv, ep = h.ep, aw = h.aw, at = h.at, pz = h.pz == '1', pa = h.pa, tv = least_serial(h), sc = h.sc,
    bg = h.bg, sl = h.sl, rs = h.rs, q = h.q, iw = h.iw, nw = h.nw, dd = h.dd, il = h.il, pm = h.pm, cc = h.cc, cancelled = cancelled(h),
    updated = tonumber(call('ZSCORE', P .. 'idx:' .. h.tn, h.sid) or nil),
    overdue = overdue and tonumber(overdue) or nil, begin_by = h.st == 'assigned' and tonumber(call('ZSCORE', RUNNING, h.sid)) or nil,
    holder = who(h.ow), others = others_wait(h), calls = calls_of(h), inbox = queue_of(inbox_key(h.sid)), next = queue_of(next_key(h.sid)),
    backlog = backlog_of(h), room = room_for(h), lanes = lanes_of(h),
  })
end
