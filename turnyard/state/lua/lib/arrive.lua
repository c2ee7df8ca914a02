-- What each kind of ingress event does to its session.
local function interrupt(h, mode, user)
  if h.tu ~= '' then set_cancel(h, h.tu, 'superseded', mode == 'rollback' and (user == '' and '?' or user) or nil) end
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
  call('ZADD', DEADLINES, due, 's!' .. h.sid .. '!c' .. it.st)
end

local function on_user(h, e)
  local mode = e.md
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
  if e.as == '1' and joined and h.tu ~= '' and h.aw > 0 then overtake(h) end
  if mode == 'collect' then
    collect(h, it, tonumber(e.wn), tonumber(e.wx))
  elseif tonumber(e.dy) > 0 then
    it.du = NOW + tonumber(e.dy)
    push_next(h, it)
    call('ZADD', DEADLINES, it.du, 's!' .. h.sid .. '!' .. it.m)
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

local function drop_item(h, queue, job)
  local list, kept = items(queue), {}
  for _, x in ipairs(list) do
    if x.m ~= job then kept[#kept + 1] = x end
  end
  return #kept < #list and kept or nil
end

local function on_cancel_job(h, e)
  local k = job_key(e.job)
  local st = call('HGET', k, 'st')
  if st == 'queued' then
    local inbox, later = drop_item(h, inbox_key(h.sid), e.job), drop_item(h, next_key(h.sid), e.job)
    if inbox then save_inbox(h, inbox) end
    if later then save_next(h, later) end
    add(h, 'q', -1)
    end_job(e.job, 'cancelled', nil, nil, nil, 'user')
    record(h, tostring(h.so), false, 't', 'job', 'j', e.job, 'o', 'cancelled')
    if h.st == 'ready' and h.tu == '' and not wakes(h) and not next_due(h) then
      leave_flow(h)
      set(h, 'st', 'idle')
    end
  elseif st == 'waiting' or st == 'running' then
    local ord = call('HGET', k, 'eo') or tostring(h.so)
    cancel_rows(h, ord, function(r)
      if not detached(r) then return false end
      for _, j in ipairs(r.j) do
        if j == e.job then return true end
      end
      return false
    end)
    local jobs = split(h.jb)
    if #without(jobs, e.job) < #jobs then set_cancel(h, h.tu, 'user') end
  end
end

local function same_notice(x, e) return x.k == 'notice' and x.gr == e.gr and x.ky == e.ky end

-- A newer notice replaces an unshown one of its pair and store; one of an older store is removed.
local function on_notice(h, e)
  local store, replaced = tostring(h.so), false
  for _, q in ipairs({inbox_key(h.sid), next_key(h.sid)}) do
    local list, kept, hit = items(q), {}, false
    for _, x in ipairs(list) do
      if same_notice(x, e) then
        hit = true
        if not replaced and x.st == store and e.kind == 'notice' then
          x.b = e.b
          replaced = true
          kept[#kept + 1] = x
        end
      else
        kept[#kept + 1] = x
      end
    end
    if hit and q == inbox_key(h.sid) then save_inbox(h, kept) elseif hit then save_next(h, kept) end
  end
  if e.kind == 'clear' then
    record(h, store, false, 't', 'notice/cleared', 'gk', e.gr .. '\n' .. e.ky)
  elseif not replaced then
    put(h, {k = 'notice', gr = e.gr, ky = e.ky, b = e.b, st = store, w = '0', at = NOW})
  end
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
end

local APPLY = {
  user = on_user, outcome = on_outcome, late = on_outcome, decision = on_outcome, canceljob = on_cancel_job, notice = on_notice, clear = on_notice,
  pause = on_pause, resume = on_resume, new = on_new,
  cancel = function(h, e) set_cancel(h, e.tu, 'user') end,
}
