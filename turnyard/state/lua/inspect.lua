-- Everything about one session that must agree, read at one moment. Writes nothing.
--
-- KEYS  ingress  names the shard. Others carry its hash tag
-- ARGV  session key
-- Returns JSON: head fields, where the session is listed, what its queues, rows and jobs say; `now` and `ingress` are the
--       server's time and how many events wait
local OWNERS = 200 -- enough to see one that should not hold the session

local function holders(sid)
  local n = 0
  for _, owner in ipairs(call('ZRANGE', WORKERS, 0, OWNERS - 1)) do n = n + call('SISMEMBER', P .. 'w:' .. owner, sid) end
  return n
end

-- Rows that wait outside: how many hold the turn, which have no deadline, which are long past it, whose task is not held, which
-- people are asked and not shown.
local function read_rows(h, out)
  for ord = 0, h.sn - 1 do
    for _, c in ipairs(waiting(h, tostring(ord))) do
      local r = row(h, tostring(ord), c)
      if not r or r.s ~= 'parked' or r.o then
        out.strays[#out.strays + 1] = c
      else
        out.parked = out.parked + 1
        if r.aw == 1 then out.awaited = out.awaited + 1 end
        local due = call('ZSCORE', DEADLINES, call_member(h, r))
        if not due then out.undated[#out.undated + 1] = c elseif NOW - due > out.overdue_ms then out.overdue_ms = NOW - due end
        if r.tk and call('SISMEMBER', P .. 'w:' .. r.tk, call_member(h, r)) == 0 then out.unheld[#out.unheld + 1] = c end
        if asks(r) and not call('ZSCORE', asked_key(h), asked_member(h, r)) then out.unlisted[#out.unlisted + 1] = c end
        for _, j in ipairs(r.j) do out.jobs[j] = true end
      end
    end
  end
  for _, c in ipairs(split(h.pe)) do
    if not row(h, h.ts, c) then out.strays[#out.strays + 1] = c end
  end
end

local function read_items(h, out)
  local stores = {}
  for _, it in ipairs(items(inbox_key(h.sid))) do
    if it.w == '1' then out.wakers = out.wakers + 1 end
    if it.k == 'user' then out.users = out.users + 1 end
    if it.m then out.jobs[it.m] = true end
    if not stores[it.st] then
      stores[it.st] = true
      out.inbox_stores = out.inbox_stores + 1
    end
  end
  for _, it in ipairs(items(next_key(h.sid))) do
    if it.du then
      out.delayed = out.delayed + 1
      if not call('ZSCORE', DEADLINES, delay_member(h, it)) then out.unscheduled = out.unscheduled + 1 end
    elseif it.w == '1' then
      out.undelayed = out.undelayed + 1
    end
    if it.sj == '1' then out.joining = out.joining + 1 end
    if it.k == 'user' then out.users = out.users + 1 end
    if it.m then out.jobs[it.m] = true end
  end
end

local function read_jobs(h, out)
  for _, j in ipairs(split(h.jb)) do out.jobs[j] = true end
  local states = {}
  for j in pairs(out.jobs) do
    local v = call('HMGET', job_key(j), 'st', 'op')
    states[#states + 1] = {j, v[1] or '', tonumber(v[2] or 0)}
  end
  out.jobs = states
end

-- A log's length is its last number, or numbers are missing.
local function read_logs(h, out)
  for ord = 0, h.sn - 1 do
    local sq = seqs(h, tostring(ord))
    local length = call('XLEN', log_key(h, tostring(ord)))
    if length ~= h[sq] then out.gaps[#out.gaps + 1] = {ord, h[sq], length} end
  end
end

local function main()
  local h = load(ARGV[1])
  if h.new then return false end
  local flow = flow_of(h)
  local out = {
    running = call('ZSCORE', RUNNING, h.sid) or false,
    held = h.ow ~= '' and call('SISMEMBER', P .. 'w:' .. h.ow, h.sid) or 0,
    holders = holders(h.sid),
    in_flow = call('ZSCORE', flow_key(flow), h.sid) and 1 or 0,
    flow_listed = call('ZSCORE', FLOWS, flow) and 1 or 0,
    flow_blocked = call('HGET', LIMITS, 'b:' .. flow) or false,
    parked = 0, awaited = 0, wakers = 0, undelayed = 0, delayed = 0, joining = 0, users = 0, unscheduled = 0, inbox_stores = 0,
    overdue_ms = 0, strays = {}, undated = {}, unheld = {}, unlisted = {}, gaps = {}, jobs = {},
    now = NOW, ingress = call('XLEN', KEYS[1]),
  }
  if out.flow_blocked then out.flow_waits = call('SISMEMBER', P .. 'blocked:' .. out.flow_blocked, flow) else out.flow_waits = 0 end
  read_rows(h, out)
  read_items(h, out)
  read_jobs(h, out)
  read_logs(h, out)
  local _, le = seqs(h, tostring(h.so))
  out.last_entry = h[le]
  out.head = {st = h.st, ep = h.ep, ow = h.ow, tu = h.tu, ts = h.ts, rv = h.rv, aw = h.aw, iw = h.iw, nw = h.nw, nd = h.nd, nj = h.nj, pz = h.pz, tn = h.tn, ag = h.ag,
    id = h.id, po = h.po, q = h.q, so = h.so, sn = h.sn, ct = h.ct, at = h.at, pe = h.pe, rs = h.rs, sl = h.sl, bg = h.bg}
  return cjson.encode(out)
end
