-- Everything about one session that must agree, read at one moment. Writes nothing.
--
-- KEYS  ingress  names the shard. Others carry its hash tag
-- ARGV  session key
-- Returns JSON: head fields, where the session is listed, what its queues and rows say
local function main()
  local h = load(ARGV[1])
  if h.new then return false end
  local flow = flow_of(h)
  local awaited, wakers, undelayed, delayed, joining = 0, 0, 0, 0, 0
  for ord = 0, h.sn - 1 do
    for _, c in ipairs(waiting(h, tostring(ord))) do
      local r = row(h, tostring(ord), c)
      if r and r.aw == 1 and r.s == 'parked' and not r.o then awaited = awaited + 1 end
    end
  end
  for _, it in ipairs(items(inbox_key(h.sid))) do
    if it.w == '1' then wakers = wakers + 1 end
  end
  for _, it in ipairs(items(next_key(h.sid))) do
    if it.du then delayed = delayed + 1 elseif it.w == '1' then undelayed = undelayed + 1 end
    if it.sj == '1' then joining = joining + 1 end
  end
  local _, le = seqs(h, tostring(h.so))
  return cjson.encode({
    head = {st = h.st, ep = h.ep, ow = h.ow, tu = h.tu, ts = h.ts, rv = h.rv, aw = h.aw, iw = h.iw, nw = h.nw, nd = h.nd, nj = h.nj, pz = h.pz, tn = h.tn, ag = h.ag,
      id = h.id, po = h.po, q = h.q, so = h.so, sn = h.sn, ct = h.ct, at = h.at},
    running = call('ZSCORE', RUNNING, h.sid) or false,
    held = h.ow ~= '' and call('SISMEMBER', P .. 'w:' .. h.ow, h.sid) or 0,
    in_flow = call('ZSCORE', flow_key(flow), h.sid) and 1 or 0,
    flow_listed = call('ZSCORE', FLOWS, flow) and 1 or 0,
    flow_blocked = call('HGET', LIMITS, 'b:' .. flow) or false,
    awaited = awaited, wakers = wakers, undelayed = undelayed, delayed = delayed, joining = joining,
    last_entry = h[le],
  })
end
