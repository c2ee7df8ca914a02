-- The parts of a tick. Each does at most a hundred things and finds the rest next time.
local BATCH = 100
local TRIES = 3

-- The task's worker is gone: what may be repeated is relayed again, up to a bound; anything else is unknown. A call that its worker had
-- let go of is a lifted one from then on.
local function task_dead(h, r, owner)
  if r.tk ~= owner then return end
  local repeats = r.i == 1 or r.mo == 'poll' or r.mo == 'resolve'
  r.tk, r.tj, r.mo = nil, nil, nil
  if r.o then return put_row(h, r) end
  if repeats and r.tr < TRIES then
    r.tr = r.tr + 1
    if not relayable(r) then r.k = 'lift' end
    if r.tm then
      r.dl = NOW + DAY
      call('ZADD', DEADLINES, r.dl, call_member(h, r))
    end
    return relay(h, r)
  end
  local outcome = 'unknown'
  if repeats then
    outcome = 'error'
    call('HSET', calls_key(h, r.ord), r.c .. ':r', '{"content":"poisoned: the task ended its worker three times and is not tried again","is_error":true}')
    letter('lifted_poisoned', {sid = h.sid, tu = r.t, job = r.j[1], c = r.c, st = h.sid .. '.' .. r.ord})
  end
  settle(h, r, outcome)
  record(h, r.ord, false, 't', 'call/resolved', 'u', r.t, 'c', r.c, 'o', outcome, 'by', 'tick')
  if r.aw ~= 1 then put(h, {k = 'note', c = r.c, o = outcome, st = r.ord, w = '1', kd = r.k}) end
  wake(h)
end

-- One turn or task of a dead owner goes to others; false when it was not held any more.
local function hand_back(owner, m, verdict, report)
  if call('SREM', P .. 'w:' .. owner, m) == 0 then return false end
  local sid, ord, c = string.match(m, '^c!(%w+)%.(%d+)!(.+)$')
  local h = load(sid or m)
  if sid then
    local r = row(h, ord, c)
    if r then task_dead(h, r, owner) end
  elseif h.st == 'running' and h.ow == owner then
    release(h)
    set(h, 'ow', '')
    charge(h, verdict, report)
    to_ready(h, true)
  end
  return true
end

-- First the fence (score -inf: begin, beat and every commit treat it as gone), then up to `most` of its set, then the name.
-- Who is charged for what it ran is decided at the fence and kept for those who find the rest.
local function expel(owner, most, report)
  local score = call('ZSCORE', WORKERS, owner)
  if not score then return 0 end
  local key, n = P .. 'w:' .. owner, 0
  local verdict
  if score ~= '-inf' then
    verdict = report and 'child' or verdict_on((fleet_of(owner) or {}).host or '')
    call('ZADD', WORKERS, '-inf', owner)
    part(owner)
    if call('SCARD', key) > most then call('SET', key .. ':why', verdict) end
  else
    verdict = call('GET', key .. ':why') or 'child'
  end
  -- The suspects go first: who finds the rest may not know of them.
  for sid in pairs(report and report.suspects or {}) do
    if n < most and hand_back(owner, sid, verdict, report) then n = n + 1 end
  end
  for _, m in ipairs(call('SRANDMEMBER', key, most - n)) do
    hand_back(owner, m, verdict, report)
    n = n + 1
  end
  if call('SCARD', key) == 0 then
    call('ZREM', WORKERS, owner)
    call('DEL', key .. ':ctl', key .. ':why')
  end
  return n
end

local function past_begin_by()
  local late = call('ZRANGEBYSCORE', RUNNING, '-inf', NOW, 'LIMIT', 0, BATCH)
  for _, sid in ipairs(late) do
    local h = load(sid)
    if h.st == 'assigned' then
      release(h)
      if h.tu == '' and not wakes(h) and not next_due(h) then set(h, 'st', 'idle') else to_ready(h, true) end
    end
  end
  return #late
end

local function call_due(sid, ord, c)
  local h = load(sid)
  local r = not h.new and row(h, ord, c)
  if not r then return end
  -- A session that did not run all this time (paused, no worker) still has to be told.
  if r.o and (r.an ~= 1 or untold(h)[ord .. '!' .. c]) then
    call('ZADD', DEADLINES, NOW + DAY, call_member(h, r))
    return
  end
  if r.o then
    call('HDEL', calls_key(h, ord), c, c .. ':r', c .. ':l', c .. ':q', c .. ':d')
    h.rows[c] = false
    return
  end
  if r.s ~= 'parked' then return end
  if only_wakes(r) then
    settle(h, r, 'fired')
    return wake(h)
  end
  local task, outcome = r.tk, 'timeout'
  if r.rp then
    outcome = 'result'
    call('HSET', calls_key(h, ord), c .. ':r', call('HGET', calls_key(h, ord), c .. ':p'))
  end
  settle(h, r, outcome, 'tick')
  if task then call('RPUSH', P .. 'w:' .. task .. ':ctl', 'call ' .. c) end
  if not asks(r) then record(h, ord, false, 't', 'call/resolved', 'u', r.t, 'c', c, 'o', outcome, 'by', 'tick') end
  if r.aw ~= 1 then put(h, {k = 'note', c = c, o = outcome, st = ord, w = '1', kd = r.k}) end
  wake(h)
end

-- A parked lift that nobody has begun is relayed again: the next one to come begins it. The start of a child is sent again
-- while it runs: its job has one id, so it starts once.
local function relay_again(sid, ord, c)
  local h = load(sid)
  local r = not h.new and row(h, ord, c)
  if not r or r.o or r.s ~= 'parked' or r.tk then return end
  relay(h, r)
end

-- A cancel that its worker did not answer: this one session is fenced and closed by another.
local function cancel_overdue(sid)
  local h = load(sid)
  if h.ct ~= '' and h.st == 'running' then
    release(h)
    to_ready(h, true)
  end
end

local function job_due(sid, job)
  local h = load(sid)
  if not h.new then cancel_one(h, job, {cause = 'deadline'}) end
end

local function past_deadlines()
  local due = call('ZRANGEBYSCORE', DEADLINES, '-inf', NOW, 'LIMIT', 0, BATCH)
  for _, m in ipairs(due) do
    call('ZREM', DEADLINES, m)
    local what, rest = string.sub(m, 1, 1), string.sub(m, 3)
    local sid, ord, c = string.match(rest, '^(%w+)%.(%d+)!(.+)$')
    if what == 'c' then call_due(sid, ord, c)
    elseif what == 'r' then relay_again(sid, ord, c)
    elseif what == 'x' then cancel_overdue(rest)
    elseif what == 'j' then job_due(string.match(rest, '^(%w+)!(.+)$'))
    elseif what == 's' then wake(load(string.match(rest, '^%w+'))) end
  end
  return #due
end

local function recheck_blocked()
  for _, res in ipairs(call('SRANDMEMBER', P .. 'blocked', 20)) do
    if room_of(res) then wake_one(res) end
  end
end

-- A tag that v has passed says nothing more once its tenant holds no slot; while nothing runs or waits, v passes them all.
local function forget_tags()
  local rest = call('EXISTS', RUNNING, FLOWS, P .. 'blocked') == 0
  local page = call('HSCAN', LIMITS, limit('cursor') or 0, 'MATCH', 'vt:*', 'COUNT', 50)
  for i = 1, #page[2], 2 do
    local tenant = string.sub(page[2][i], 4)
    local tag, v = tonumber(limit('vt:' .. tenant) or 0), tonumber(limit('v') or 0)
    if rest and tag > v then
      v = tag
      set_limit('v', v)
    end
    if tag <= v and call('SCARD', P .. 'run:t/' .. tenant) == 0 then
      set_limit('vt:' .. tenant, false)
      set_limit('last:' .. tenant, false)
    end
  end
  set_limit('cursor', page[1])
end
