-- What a shard lists beside its sessions, read at one moment, and where it does not agree with them. Writes nothing.
--
-- KEYS  ingress  names the shard. Others carry its hash tag
-- ARGV  limit    how many members of each listing to look at (at most 200)
-- Returns JSON: slots in use and allowed, leaks (slots, uses, held members, flow members that no session accounts for), flows that
--       are both offered and blocked or neither, how old the last tick and the oldest accepted event are
local out

local function leak(where, who) out.leaks[#out.leaks + 1] = {where, who} end

local function read_slots(most)
  local uses = {}
  for _, sid in ipairs(call('ZRANGE', RUNNING, 0, most - 1)) do
    local h = load(sid)
    if h.st ~= 'assigned' and h.st ~= 'running' then leak('running', sid) end
    for _, res in ipairs(resources(h)) do
      uses[res] = (uses[res] or 0) + 1
      if call('SISMEMBER', P .. 'run:' .. res, sid) == 0 then leak('run:' .. res .. ' lacks', sid) end
    end
  end
  if out.running > most then return end
  for res, n in pairs(uses) do
    if call('SCARD', P .. 'run:' .. res) ~= n then leak('run:' .. res, call('SCARD', P .. 'run:' .. res) .. ' where ' .. n .. ' run') end
  end
end

local function read_holdings(most)
  local left = most
  for _, owner in ipairs(call('ZRANGE', WORKERS, 0, most - 1)) do
    if left <= 0 then return end
    for _, m in ipairs(call('SRANDMEMBER', P .. 'w:' .. owner, left)) do
      left = left - 1
      local sid, ord, c = string.match(m, '^c!(%w+)%.(%d+)!(.+)$')
      local h = load(sid or m)
      if sid then
        local r = row(h, ord, c)
        if not r or r.tk ~= owner then leak('w:' .. owner, m) end
      elseif h.st ~= 'running' or h.ow ~= owner then
        leak('w:' .. owner, m)
      end
    end
  end
end

-- A flow waits in exactly one place, and only sessions that are ready wait in it.
local function read_flow(flow, offered, left)
  local res = limit('b:' .. flow)
  if res and offered then leak('flows and blocked:' .. res, flow) end
  if offered and call('ZCARD', flow_key(flow)) == 0 then leak('flows', flow) end
  for _, sid in ipairs(call('ZRANGE', flow_key(flow), 0, left - 1)) do
    local h = load(sid)
    if h.st ~= 'ready' or flow_of(h) ~= flow then leak('f:' .. flow, sid) end
  end
end

local function read_flows(most)
  for _, flow in ipairs(call('ZRANGE', FLOWS, 0, most - 1)) do read_flow(flow, true, 20) end
  local left = most
  for _, res in ipairs(call('SRANDMEMBER', P .. 'blocked', most)) do
    for _, flow in ipairs(left > 0 and call('SRANDMEMBER', P .. 'blocked:' .. res, left) or {}) do
      left = left - 1
      if limit('b:' .. flow) ~= res then leak('blocked:' .. res, flow) end
      read_flow(flow, false, 20)
    end
  end
end

local function main()
  local most = math.min(200, tonumber(ARGV[1]))
  want_limits('max', 'tick', 'nb')
  -- Ids of streams are the server's own time.
  local first, t = call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1], call('TIME')
  out = {
    running = call('ZCARD', RUNNING), max = tonumber(limit('max') or 200), leaks = {}, now = NOW,
    ingress = call('XLEN', KEYS[1]), oldest_ms = first and math.max(0, t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(string.match(first[1], '^%d+'))) or 0,
    tick_age_ms = limit('tick') and NOW - tonumber(limit('tick')) or -1,
    overdue_ms = 0,
  }
  local due = call('ZRANGE', DEADLINES, 0, 0, 'WITHSCORES')
  if due[2] then out.overdue_ms = math.max(0, NOW - tonumber(due[2])) end
  read_slots(most)
  read_holdings(most)
  read_flows(most)
  return cjson.encode(out)
end
