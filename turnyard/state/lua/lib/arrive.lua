-- What each kind of ingress event does to its session.
local function interrupt(h, mode, user)
  if h.tu ~= '' then set_cancel(h, h.tu, {cause = 'superseded', strike = mode == 'rollback' and (user == '' and '?' or user) or nil}) end
end

-- A collect window: every item of a store's open window is due at once; a window that has closed stays closed.
local function collect(h, it, window, longest)
  local all, first, group, due, due0 = items(next_key(h.sid)), NOW, it.m, nil, nil
  for _, x in ipairs(all) do
    if x.g and x.st == it.st then
      first, group, due0 = tonumber(x.fi), x.g, tonumber(x.du)
      break
    end
  end
  due = math.min(first + longest, NOW + window)
  if due0 and due0 <= NOW then due = due0 end
  it.fi, it.g, it.du = first, group, due
  for _, x in ipairs(all) do
    if x.g == group and x.st == it.st then x.du = due end
  end
  all[#all + 1] = it
  save_next(h, all)
  call('ZADD', DEADLINES, due, delay_member(h, it))
end

-- Messages that lay in ingress when all that waited was cancelled.
local function is_void(h, eid)
  if h.xq == '' then return false end
  local ms, n = string.match(eid, '(%d+)-(%d+)')
  local end_ms, end_n = string.match(h.xq, '(%d+)-(%d+)')
  if ms ~= end_ms then return tonumber(ms) < tonumber(end_ms) end
  return tonumber(n) < tonumber(end_n)
end

local function on_user(h, e)
  local mode = e.md
  -- Its cancel was accepted before it came this far.
  if call('HGET', job_key(e.job), 'st') ~= 'queued' then return end
  if is_void(h, e.eid) then return end_queued(h, e.job, h.xc) end
  if h.tu == '' then
    if h.st == 'idle' then
      set(h, 'ag', e.ag)
      set(h, 'po', e.po)
      set(h, 'pr', tonumber(e.pr))
    end
  end
  local it = {k = 'user', m = e.job, st = tostring(h.so), w = '1', as = e.as, us = e.us, at = NOW}
  if mode == 'interrupt' or mode == 'rollback' then
    interrupt(h, mode, e.us)
    mode = 'steer'
  end
  local joined = mode == 'steer' and tonumber(e.dy) == 0 and (h.tu == '' or it.st == h.ts)
  if joined and h.tu ~= '' and h.aw > 0 then overtake(h, {it}) end
  if mode == 'collect' then
    collect(h, it, tonumber(e.wn), tonumber(e.wx))
  elseif tonumber(e.dy) > 0 then
    it.du = NOW + tonumber(e.dy)
    push_next(h, it)
    call('ZADD', DEADLINES, it.du, delay_member(h, it))
  elseif mode == 'follow_up' then
    push_next(h, it)
  else
    put(h, it)
  end
  record(h, it.st, false, 't', 'inbox/accepted', 'j', e.job)
  wake(h)
end

local function on_outcome(h, e)
  local r = row(h, e.st, e.c)
  if not r then return end
  if e.kind == 'late' then
    put(h, {k = 'note', c = e.c, o = r.la, l = '1', st = e.st, w = '1', kd = r.k})
  elseif r.aw ~= 1 and e.kind == 'outcome' then
    put(h, {k = 'note', c = e.c, o = r.o, st = e.st, w = '1', kd = r.k})
  end
  wake(h)
end

local function on_notice(h, e)
  if e.kind == 'notice' then
    show_notice(h, e)
    return e.wk and wake(h)
  end
  drop_notice(h, e.gr, e.ky, nil)
  record(h, tostring(h.so), false, 't', 'notice/cleared', 'gk', e.gr .. '\n' .. e.ky)
  set(h, 'nc', tostring(h.so))
end

local function on_pause(h)
  set(h, 'pa', NOW)
  set(h, 'pz', '1')
  if h.st == 'ready' and not cancelled(h) then
    leave_flow(h)
    set(h, 'st', h.tu ~= '' and 'parked' or 'idle')
  elseif h.st == 'assigned' and not cancelled(h) then
    release(h)
    set(h, 'st', h.tu ~= '' and 'parked' or 'idle')
  end
end

local function on_resume(h)
  set(h, 'pz', '')
  wake(h)
end

local function on_new(h)
  record(h, tostring(h.so), false, 't', 'store/opened', 'x', h.sn)
  set(h, 'so', h.sn)
  set(h, 'sn', h.sn + 1)
  set(h, 'gn', '')
end

local APPLY = {
  user = on_user, outcome = on_outcome, late = on_outcome, decision = on_outcome, canceljob = function(h, e) cancel_one(h, e.job, {cause = e.ca or 'user', cascade = e.cs}) end, notice = on_notice, clear = on_notice,
  pause = on_pause, resume = on_resume, new = on_new,
  cancel = function(h, e) set_cancel(h, e.tu, {cause = e.ca or 'user', cascade = e.cs}) end,
  ended = function(h, e) end_jobs(h, split(e.jobs), e.ca) end,
}
