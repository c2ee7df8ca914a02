-- Cancel, and what a newer message of the asker does to calls that hold the turn.
-- How: {cause, strike, cascade}; cause is user, deadline, superseded, budget or poisoned, cascade '1' takes child sessions along.
local function aside_cancelled(h, r, cause)
  if r.aw == 1 or r.an ~= 1 then return end
  put(h, {k = 'note', c = r.c, o = 'cancelled', st = r.ord, w = '0', kd = r.k})
  job_open(r, -1)
  finish_waiting(h, r, cause)
end

-- Whoever works on a parked call is told: a task by its worker's list, a child session through the lane. What is looked at again
-- goes on elsewhere: when nobody looks at the moment, a task is handed out that has it stopped.
local function call_off(h, r, how)
  -- Nobody knows how far a call came that took its worker with it.
  if not settle(h, r, how.cause == 'poisoned' and r.s == 'started' and 'unknown' or 'cancelled', '', how.cause) or r.s ~= 'parked' then return end
  if r.tk then call('RPUSH', P .. 'w:' .. r.tk .. ':ctl', 'call ' .. r.c) end
  if r.k == 'child' and how.cascade == '1' then
    record(h, r.ord, false, 't', 'call/cancelled', 'u', r.t, 'c', r.c, 'k', r.k, 'ca', how.cause)
    wake_lane(h, r.ord, 'session')
  elseif r.pl == 1 and not r.tk then
    record(h, r.ord, false, 't', 'call/cancelled', 'u', r.t, 'c', r.c, 'k', r.k, 'qn', r.qn or '', 'ca', how.cause)
    wake_lane(h, r.ord, 'arq')
  end
end

local function cancel_rows(h, ord, how, match)
  for _, c in ipairs(waiting(h, ord)) do
    local r = row(h, ord, c)
    if r and r.s == 'parked' and match(r) then
      call_off(h, r, how)
      aside_cancelled(h, r, how.cause)
    end
  end
end

local function set_cancel(h, turn, how)
  local OVERDUE = 10000
  if turn == '' or h.tu ~= turn then return false end
  local again, cause = cancelled(h), how.cause
  if again and h.cc == 'poisoned' then cause = h.cc end
  set(h, 'ct', turn)
  set(h, 'cc', cause)
  set(h, 'ck', how.strike or again and h.ck or '')
  set(h, 'cs', how.cascade or again and h.cs or '')
  cancel_rows(h, h.ts, how, function(r) return r.t == turn end)
  if h.st == 'parked' then
    for _, c in ipairs(split(h.pe)) do
      local r = row(h, h.ts, c)
      if r and r.aw == 1 and r.t == turn then call_off(h, r, how) end
    end
    if h.aw <= 0 then to_ready(h, true) end
  elseif h.st == 'ready' then
    -- What only closes need not wait for a child of its own, nor for a newer worker.
    if h.il > 0 then
      leave_flow(h)
      to_ready(h, true)
    else
      offer(flow_of(h))
    end
  elseif h.st == 'running' and h.ow ~= '' then
    local ctl = P .. 'w:' .. h.ow .. ':ctl'
    call('RPUSH', ctl, 'turn ' .. h.sid .. ' ' .. h.ep)
    call('PEXPIRE', ctl, 60000)
    call('ZADD', DEADLINES, NOW + tonumber(limit('overdue') or OVERDUE), 'x!' .. h.sid)
  end
  return true
end

-- A session that would take a slot for nothing leaves its flow. An assignment stays: begin finds nothing and ends at once.
local function rest(h)
  if h.st == 'ready' and h.tu == '' and not wakes(h) and not next_due(h) then
    leave_flow(h)
    set(h, 'st', 'idle')
  end
end

local function without_jobs(queue, gone)
  local list, kept = items(queue), {}
  for _, x in ipairs(list) do
    if not (x.k == 'user' and gone(x.m)) then kept[#kept + 1] = x end
  end
  return #kept < #list and kept or nil
end

-- Messages that wait go, those whose job `gone` names; notices and results stay.
local function empty_queues(h, gone)
  local inbox, later = without_jobs(inbox_key(h.sid), gone), without_jobs(next_key(h.sid), gone)
  if inbox then save_inbox(h, inbox) end
  if later then save_next(h, later) end
end

local function end_queued(h, job, cause)
  add(h, 'q', -1)
  end_job(h, tostring(h.so), job, 'cancelled', {ca = cause, alone = true})
end

-- A job that no turn has taken leaves where it waits, and ends. One whose event still lies in ingress is found ended there.
local function leave_queue(h, job, cause)
  empty_queues(h, function(j) return j == job end)
  end_queued(h, job, cause)
  rest(h)
end

-- Queued jobs whose items are gone end, so many in one call; the rest as an event of its own.
local ENDS = 50

local function end_jobs(h, jobs, cause)
  local left = {}
  for i, job in ipairs(jobs) do
    if i > ENDS then left[#left + 1] = job
    elseif call('HGET', job_key(job), 'st') == 'queued' then end_queued(h, job, cause) end
  end
  if #left > 0 then call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'ended', 'sid', h.sid, 'ca', cause, 'jobs', table.concat(left, ',')) end
end

-- All messages that wait go at once and will start nothing.
local function clear_queues(h, cause)
  local jobs = {}
  empty_queues(h, function(j)
    jobs[#jobs + 1] = j
    return true
  end)
  end_jobs(h, jobs, cause)
  rest(h)
end

-- End one job: out of its queue, or its waiting calls, or the turn that answers it.
local function cancel_one(h, job, how)
  local k = job_key(job)
  local v = call('HMGET', k, 'st', 'eo')
  if v[1] == 'queued' then return leave_queue(h, job, how.cause) end
  if v[1] ~= 'waiting' and v[1] ~= 'running' then return end
  cancel_rows(h, v[2] or tostring(h.so), how, function(r)
    if not detached(r) then return false end
    for _, j in ipairs(r.j) do
      if j == job then return true end
    end
    return false
  end)
  local jobs = split(h.jb)
  if #without(jobs, job) < #jobs then set_cancel(h, h.tu, how) end
end

-- Who wrote: everybody, and those of them who may be the asker.
local function writers(list)
  local wrote = {askers = {}}
  for _, it in ipairs(list) do
    if it.k == 'user' then
      wrote.last = it.us or ''
      if it.as == '1' then wrote.asker, wrote.askers[wrote.last] = true, true end
    end
  end
  return wrote
end

-- What people are asked is for its asker to take back; for anyone where it says so, or where nobody knows who asked.
local function gives_way(r, wrote)
  local asker = r.us or ''
  return r.any == 1 or wrote.asker and (asker == '' or wrote.askers[asker]) or false
end

-- Somebody wrote: what the writer may take back of what people are asked is superseded, other parked awaited calls become
-- detached for an asker; a retry delay stays.
local function overtake(h, list)
  local wrote = writers(list)
  if not wrote.last then return end
  for _, c in ipairs(waiting(h, h.ts)) do
    local r = row(h, h.ts, c)
    if r and r.aw == 1 and r.s == 'parked' then
      if asks(r) then
        if gives_way(r, wrote) then settle(h, r, 'superseded', wrote.askers[r.us] and r.us or wrote.last) end
      elseif wrote.asker and not only_wakes(r) then
        r.aw, r.de = 0, 1
        add(h, 'aw', -1)
        put_row(h, r)
      end
    end
  end
end
