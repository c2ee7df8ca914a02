-- What one commit does, part by part. The change: {ending, claim, closing, failure, lanes, park: [[call, ms, hash, {tk task whose effect
-- goes on at the owner, aw 1: awaited, k its kind from now on, q number of the body of its request, an 1: whoever writes takes its place, af ms until its first relay,
-- rp number of the body that its deadline gives}]], wait: [[row, retry | timer, ms]], settle: [[call,
-- outcome, body]], start: [call], tokens: [[call, hash]],
-- unstart: [call], usage: {name: n}, state: number of a body, 0 for none, low: the oldest entry a model still sees, append: [{t, b, ...}]} where t is say (calls: [{id, k, aw, i, qn, b}]),
-- answer (c, o), clear (gk, un: unshown ones, too) or note (type), and b is the number of a body.
local h -- the session that this commit is about

local function body(n) return n and n > 0 and ARGV[7 + n] or nil end

local ENTRY = {['user/message'] = true, ['assistant/message'] = true, ['tool/call'] = true, ['tool/result'] = true, ['session/compaction'] = true}
local MOST_CALLS = 64
local TOO_MANY = '{"content":"ERROR: 64 calls have no result yet; not executed. Wait for results before you make more.","is_error":true}'

-- What stands in the log behind the caller's own records comes back with the answer.
local function foreign()
  if not h.foreign then h.foreign = h[(seqs(h, h.ts))] end
end

local function refuse(calls)
  foreign()
  for _, c in ipairs(calls) do
    record(h, h.ts, true, 't', 'tool/result', 'u', h.tu, 'c', c.id, 'k', c.k, 'o', 'error', 'b', TOO_MANY)
  end
end

local function say(x)
  local seq = record(h, h.ts, true, 't', 'assistant/message', 'u', h.tu, 's', h.rv, body_of({}, body(x.b)))
  set(h, 'la', seq)
  if not x.calls then return end
  local calls, refused, free = {}, {}, MOST_CALLS - math.max(h.uw, #waiting(h, h.ts))
  for i, c in ipairs(x.calls) do
    local q = record(h, h.ts, true, 't', 'tool/call', 'u', h.tu, 's', h.rv, 'c', c.id, 'k', c.k, body_of({}, body(c.b)))
    local r = i <= free and {c = c.id, ord = h.ts, k = c.k, s = 'open', aw = c.aw, i = c.i, qn = c.qn, tm = c.tm, t = h.tu, ag = h.ag, us = h.us, j = split(h.jw), q = q, tr = 1, re = 1, fresh = true}
    if r then
      put_row(h, r)
      calls[#calls + 1] = c.id
    else
      refused[#refused + 1] = c
    end
  end
  if #calls > 0 then set(h, 'pe', table.concat(calls, ',')) end
  if #refused > 0 then refuse(refused) end
end

local function reply(x)
  local r = row(h, h.ts, x.c)
  if not r then return end
  if x.o == 'placeholder' then return add_result(h, r, 'placeholder', body(x.b)) end
  -- An event of its own would stand among the records of this commit.
  if r.s == 'parked' and asks(r) then foreign() end
  local mine = settle(h, r, x.o)
  local text = mine and body(x.b) or call('HGET', calls_key(h, h.ts), x.c .. ':r')
  if not mine then foreign() end
  -- The first outcome of a detached call stands, and its item is on the way.
  if not mine and detached(r) and r.o ~= 'cancelled' then return add_result(h, r, 'placeholder') end
  add_result(h, r, r.o, text)
end

-- A summary hides what lies before `low`; a rollback of its turn shows it again.
local function fold(low)
  local lo = 'lo:' .. h.ts
  if h.lb == 0 then set(h, 'lb', tonumber(h[lo] or 1)) end
  set(h, lo, low)
end

-- The entries of this commit, in order. Answers the seqs between which the caller knows what stands, and the store.
local function write(a)
  local first = h[(seqs(h, h.ts))] + 1
  for _, x in ipairs(a.append or {}) do
    if x.t == 'say' then say(x)
    elseif x.t == 'answer' then reply(x)
    elseif x.t == 'clear' then
      if x.un then drop_notice(h, string.match(x.gk, '^([^\n]*)\n(.*)$')) end
      record(h, h.ts, false, 't', 'notice/cleared', 'u', h.tu, 'gk', x.gk)
    else record(h, h.ts, x.entry == 1, 't', x.type, 'u', h.tu, 's', h.rv, body_of({}, body(x.b))) end
  end
  if a.state then set(h, 'sb', body(a.state) or '') end
  if a.low then fold(a.low) end
  for name, n in pairs(a.usage or {}) do set(h, 'u:' .. name, tonumber(h['u:' .. name] or 0) + n) end
  return {first = first, last = h.foreign or h[(seqs(h, h.ts))], ord = h.ts}
end

-- A call that runs long is let go of while its effect goes on where it is: the row is that task's now, and never runs twice.
local function go_on_outside(r, task, awaited)
  if r.s ~= 'started' then return end
  r.tk, r.tj = h.ow, task
  call('SADD', P .. 'w:' .. h.ow, call_member(h, r))
  if awaited == 1 then r.aw = 1 else r.de = 1 end
end

-- A row that is no call: it only holds the turn for a while.
local function wait_rows(list)
  for _, w in ipairs(list) do
    if not row(h, h.ts, w[1]) then
      local r = {c = w[1], ord = h.ts, k = w[2], s = 'parked', aw = 1, t = h.tu, j = {}, dl = NOW + w[3], si = NOW, tr = 1, re = 1}
      add(h, 'aw', 1)
      put_row(h, r)
      now_waits(h, r)
      call('ZADD', DEADLINES, r.dl, call_member(h, r))
    end
  end
end

-- What the deadline gives in place of a timeout, and whether the call is handed out later: its relays are counted from none then, and
-- its deadline is that of all its tasks together.
local function outside_later(r, more)
  if more.rp then
    call('HSET', calls_key(h, r.ord), r.c .. ':p', body(more.rp))
    r.rp = 1
  end
  if r.tk or not (more.af and (r.k == 'lift' or r.k == 'callback') or r.k == 'callback' and r.qn) then return false end
  r.pl, r.tm, r.re = more.af and 1 or nil, nil, 0
  return true
end

-- What a call waits with is kept beside its row; what it waited with before goes.
local function keep_request(r, b)
  if b then
    call('HSET', calls_key(h, r.ord), r.c .. ':q', b)
    r.rq = 1
  elseif r.rq then
    call('HDEL', calls_key(h, r.ord), r.c .. ':q')
    r.rq = nil
  end
end

-- A call may wait for something else than it was declared for: its body asks for approval first, or it was approved and now
-- waits for its result. What goes on outside asks nobody.
local function become(r, more)
  r.k = more.k or more.tk and r.k == 'approval' and 'plain' or r.k
  if more.tk then go_on_outside(r, more.tk, more.aw) end
  if more.aw == 1 then r.aw = 1 end
  -- Nothing was done before it asked.
  if r.k == 'approval' then r.at = nil end
  r.any = more.an
  keep_request(r, body(more.q))
end

local ASKED_TWICE = '{"content":"ERROR: this call was approved and asked for approval again; not executed.","is_error":true}'

-- People decide about a call once: an answer to the first question must not be taken for one to a second.
local function asks_again(r, more)
  if r.d ~= 'allow' or more.tk or (more.k or r.k) ~= 'approval' then return false end
  call('HSET', calls_key(h, r.ord), r.c .. ':r', ASKED_TWICE)
  return settle(h, r, 'error')
end

local PARKABLE = {open = true, started = true, allowed = true}

local function park_row(r, p)
  local more = p[4] or {}
  if asks_again(r, more) then return end
  become(r, more)
  r.s, r.dl, r.h = 'parked', NOW + p[2], p[3] ~= '' and p[3] or r.h
  -- Its time counts from where its task begins; how long it may wait for that is bounded, too.
  if r.k == 'lift' and not more.af then r.tm, r.dl = r.tm or p[2], NOW + math.max(p[2], DAY) end
  if r.aw == 1 and r.de ~= 1 then add(h, 'aw', 1) end
  put_row(h, r)
  now_waits(h, r)
  local later = outside_later(r, more)
  record(h, h.ts, false, 't', 'call/parked', 'u', h.tu, 'c', r.c, 'k', r.k, 'o', r.aw == 1 and 'awaited' or 'detached', 'dl', r.dl, 'qn', r.qn or '', 're', r.re)
  call('ZADD', DEADLINES, r.dl, call_member(h, r))
  if later then
    put_off(h, r, more.af)
  elseif LANE[r.k] then
    wake_lane(h, r.ord, LANE[r.k])
    call('ZADD', DEADLINES, NOW + relay_wait(r.re), relay_member(h, r))
  end
end

local function park_rows(list)
  for _, p in ipairs(list) do
    local r = row(h, h.ts, p[1])
    if r and not r.o and PARKABLE[r.s] then
      park_row(r, p)
    elseif r and p[3] ~= '' then
      r.h = p[3]
      put_row(h, r)
      call('ZADD', DEADLINES, NOW + p[2] + TOMBSTONE, call_member(h, r))
    end
  end
end

local function settle_rows(list)
  for _, s in ipairs(list) do
    local r = row(h, h.ts, s[1])
    if r and not r.o then
      local b = body(s[3])
      if b then call('HSET', calls_key(h, h.ts), s[1] .. ':r', b) end
      settle(h, r, s[2])
    end
  end
end

-- The secret of a call whose body may hand its token out is known before the body runs: an answer may come at once.
local function know_tokens(list)
  for _, t in ipairs(list) do
    local r = row(h, h.ts, t[1])
    if r then
      r.h = t[2]
      put_row(h, r)
    end
  end
end

local function start_rows(list)
  for _, c in ipairs(list) do
    local r = row(h, h.ts, c)
    if r then
      r.s = 'started'
      r.at = (r.at or 0) + 1
      put_row(h, r)
    end
  end
end

local function unstart_rows(list)
  for _, c in ipairs(list) do
    local r = row(h, h.ts, c)
    if r and r.s == 'started' and not r.o then
      r.s = r.d == 'allow' and 'allowed' or 'open'
      put_row(h, r)
    end
  end
end

-- The closing step of a cancelled turn answers every open call: a detached one that has its outcome gets the placeholder.
local function close_calls()
  local how = {cause = h.cc, cascade = h.cs}
  for _, c in ipairs(pending(h)) do
    local r = row(h, h.ts, c)
    if detached(r) and r.o and r.o ~= 'cancelled' then
      add_result(h, r, 'placeholder')
    else
      call_off(h, r, how)
      add_result(h, r, r.o, call('HGET', calls_key(h, h.ts), c .. ':r'))
    end
  end
end

-- A rollback takes this turn's own entries out of the view, its summaries with them, so that what they stood for is seen again; another user's message goes back to the front of the inbox.
-- So many records in one commit, the newest first; true: there are more, and the turn stays open for the next closing step.
local STRIKES = 1000

local function own_entry(e)
  if e.u ~= h.tu or not ENTRY[e.t] then return false end
  if not (e.f and string.find(e.f, 'a', 1, true)) then return true end
  local r = row(h, h.ts, e.c)
  return r and r.t == h.tu
end

local function give_back(e)
  set(h, 'jb', table.concat(without(split(h.jb), e.j), ','))
  set(h, 'jw', table.concat(without(split(h.jw), e.j), ','))
  call('HSET', job_key(e.j), 'st', 'queued', 'in', e.b or '')
  add(h, 'q', 1)
  return {k = 'user', m = e.j, st = h.ts, w = '1', as = '0', us = call('HGET', job_key(e.j), 'us') or '', sj = '1', at = NOW}
end

local function strike()
  local struck, back = {}, {}
  local upto = h.tz > 0 and '(' .. h.tz .. '-0' or '+'
  local page = call('XREVRANGE', log_key(h, h.ts), upto, '(' .. h.t0 .. '-0', 'COUNT', STRIKES)
  for i = #page, 1, -1 do
    local e = item(page[i])
    if own_entry(e) then
      struck[#struck + 1] = tonumber(string.match(e.eid, '^%d+'))
      local r = e.t == 'tool/call' and row(h, h.ts, e.c)
      if r then
        r.sk = 1
        put_row(h, r)
      elseif e.t == 'user/message' and e.f == 'o' then
        back[#back + 1] = give_back(e)
      end
    end
  end
  if #back > 0 then
    for _, it in ipairs(items(inbox_key(h.sid))) do back[#back + 1] = it end
    save_inbox(h, back)
  end
  if h.lb > 0 then set(h, 'lo:' .. h.ts, h.lb) end
  record(h, h.ts, false, 't', 'strike', 'u', h.tu, 'x', table.concat(struck, ','))
  if #page == STRIKES then set(h, 'tz', tonumber(string.match(page[#page][1], '^%d+'))) end
  return #page == STRIKES
end

local function finish(a, closing, tired, turn)
  if a.closing then close_calls() end
  if closing and h.ck ~= '' and strike() then return 'none' end
  local store, goes_on = h.ts, wakes(h) and not closing and not tired and h.il == 0 and h.pz ~= '1'
  end_turn(h, body(a.failure))
  if goes_on then
    set(h, 'tu', turn)
    set(h, 'ts', store)
    set(h, 'ac', h.bg - NOW)
    set(h, 'tv', tonumber(a.serial or 0))
    set(h, 'ta', h.tv)
    local _, le = seqs(h, store)
    set(h, 't0', h[le])
    claim(h)
    return 'none'
  end
  release(h)
  set(h, 'st', 'idle')
  wake(h)
  leave_wake()
  return 'finish'
end

local function park(closing)
  if h.aw > 0 then overtake(h, items(inbox_key(h.sid))) end
  if closing then return 'none' end
  if h.aw == 0 then
    claim(h)
    return 'none'
  end
  release(h)
  set(h, 'st', 'parked')
  leave_wake()
  return 'park'
end

local function finish_with(a, closing, tired, turn)
  if a.ending == 'finish' then return finish(a, closing, tired, turn) end
  if a.ending == 'park' then return park(closing) end
  if a.ending == 'yield' then
    release(h)
    to_ready(h)
    leave_wake()
    return 'yield'
  end
  if a.claim and not closing then claim(h) end
  return 'none'
end
