-- The only writer of other people's input into the log.
local CLAIM = 100

local function body_of(f, b)
  if b and b ~= '' then
    f[#f + 1] = 'b'
    f[#f + 1] = b
  end
  return unpack(f)
end

-- Answer a call in place. A placeholder answers it without ending it.
local function add_result(h, r, outcome, body)
  record(h, r.ord, true, 't', 'tool/result', 'u', h.tu, 'c', r.c, 'k', r.k, body_of({'o', outcome}, body))
  local was = r.an
  answered(h, r, outcome)
  set(h, 'pe', table.concat(without(pending(h), r.c), ','))
  if outcome == 'placeholder' then job_open(r, 1) elseif was == 1 then job_open(r, -1) end
end

local function add_note(h, it)
  local r = row(h, it.st, it.c)
  local counted = it.l ~= '1' and it.o ~= 'cancelled'
  if r and r.sk == 1 then
    let_go(h, r)
    if counted then
      job_open(r, -1)
      finish_waiting(h, r)
    end
    return
  end
  local body = call('HGET', calls_key(h, it.st), it.c .. (it.l == '1' and ':l' or ':r')) or it.b
  record(h, it.st, true, 't', 'tool/result', 'u', h.tu, 'c', it.c, 'k', it.kd or '', 'f', it.l == '1' and 'al' or 'a', body_of({'o', it.o}, body))
  if not r then return end
  if counted then job_open(r, -1) end
  local jobs, wait = split(h.jb), split(h.jw)
  for _, j in ipairs(r.j) do
    local st = call('HGET', job_key(j), 'st')
    if (st == 'waiting' or st == 'running') and #without(jobs, j) == #jobs then
      jobs[#jobs + 1], wait[#wait + 1] = j, j
      call('HSET', job_key(j), 'st', 'running')
    end
  end
  set(h, 'jb', table.concat(jobs, ','))
  set(h, 'jw', table.concat(wait, ','))
  let_go(h, r)
end

local function add_user(h, it)
  local k = job_key(it.m)
  local v = call('HMGET', k, 'in', 'cw', 'sa')
  local seq = record(h, it.st, true, 't', 'user/message', 'u', h.tu, 's', h.rv, 'j', it.m, 'f', it.as == '1' and '' or 'o', body_of({}, v[1]))
  call('HSET', k, 'st', 'running', 'tu', h.tu, 'en', seq, 'eo', it.st, 'sa', v[3] or NOW, 'in', '')
  add(h, 'q', -1)
  -- The turn acts for who asked; somebody else's word in it gives no right of theirs to it.
  if it.as == '1' or h.jb == '' then set(h, 'us', it.us or '') end
  set(h, 'jb', h.jb == '' and it.m or h.jb .. ',' .. it.m)
  if v[2] ~= 'turn' then set(h, 'jw', h.jw == '' and it.m or h.jw .. ',' .. it.m) end
end

-- What has outlived its time is not shown.
local function add_notice(h, it)
  if it.un and tonumber(it.un) <= NOW then return end
  local f = {}
  if it.gr .. it.ky ~= '' then f = {'gk', it.gr .. '\n' .. it.ky} end
  if it.un then
    f[#f + 1] = 'dl'
    f[#f + 1] = it.un
  end
  record(h, it.st, true, 't', 'notification', 'u', h.tu, body_of(f, it.b))
end

local function settled_rows(h)
  for _, c in ipairs(pending(h)) do
    local r = row(h, h.ts, c)
    if r and r.o and (r.aw == 1 or r.k == 'approval') and r.de ~= 1 then
      add_result(h, r, r.o, call('HGET', calls_key(h, h.ts), c .. ':r'))
    elseif r and r.de == 1 and (r.s == 'parked' or r.o) then
      add_result(h, r, 'placeholder')
    end
  end
end

-- First results of settled and demoted rows, in source order; then, only when no declared call is unanswered, the inbox.
local function claim(h)
  if h.pe ~= '' then settled_rows(h) end
  if h.pe ~= '' then return end
  if h.ib == '' then return end
  local list = items(inbox_key(h.sid))
  local keep = {}
  for i, it in ipairs(list) do
    if it.st ~= h.ts or i > CLAIM then
      keep[#keep + 1] = it
    elseif it.k == 'user' then
      add_user(h, it)
    elseif it.k == 'notice' then
      add_notice(h, it)
    else
      add_note(h, it)
    end
  end
  if #keep > 0 then save_inbox(h, keep) else
    call('DEL', inbox_key(h.sid))
    set(h, 'iw', 0)
    set(h, 'ib', '')
  end
end

-- Give the session a turn: of the first due item of `next` when nothing in the inbox wakes, of the inbox's store else.
local function open_turn(h, turn)
  if not wakes(h) then
    local it = due_item(h)
    if it then
      local inbox, rest, group, asides = items(inbox_key(h.sid)), {}, {}, {}
      local all = items(next_key(h.sid))
      for _, x in ipairs(inbox) do
        if x.w == '0' and x.st == it.st then asides[#asides + 1] = x else rest[#rest + 1] = x end
      end
      for _, x in ipairs(all) do
        if x.eid == it.eid or (it.g and x.g and x.st == it.st) then
          x.du = nil
          group[#group + 1] = x
        elseif x.w == '0' and x.st == it.st then
          asides[#asides + 1] = x
        else
          rest[#rest + 1] = x
        end
      end
      for _, x in ipairs(group) do asides[#asides + 1] = x end
      save_inbox(h, asides)
      save_next(h, rest)
    end
  end
  set(h, 'tu', turn)
  set(h, 'ts', h.ib ~= '' and h.ib or tostring(h.so))
  if h.nj > 0 then
    local inbox, rest = items(inbox_key(h.sid)), {}
    for _, x in ipairs(items(next_key(h.sid))) do
      if x.sj == '1' and x.st == h.ts and not x.du then inbox[#inbox + 1] = x else rest[#rest + 1] = x end
    end
    save_inbox(h, inbox)
    save_next(h, rest)
  end
  local _, le = seqs(h, h.ts)
  set(h, 't0', h[le])
end
