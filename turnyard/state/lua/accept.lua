-- The one door in: a user message, an outcome of a call, a control or a notice becomes durable, once.
--
-- KEYS  ingress  stream: accepted events in order, drained by dispatch. Others carry its hash tag: s:<id>:head, j:<job>,
--                h:<store>:calls, deadlines, w:<owner>, idx:<tenant>, d:<day>:<bucket> (two days); s:<id>:inbox, next, flows (job)
-- ARGV  kind     user | outcome | control | notice | job | follow
--       user     session key, job, meta: flat pairs (see below), body, cap (messages a session may have unclaimed)
--       outcome  session key, store ordinal, call, outcome, body, hash of the secret or '', owner, task, by, reason, grant
--                allow and deny decide an approval: body is the decision, that of a deny the result too; reason is told to who follows,
--                grant ('' none) is what is allowed for the session from now on
--       control  session key, name, event id, bucket, turn or '', flat pairs: ca cause, all (1: what waits goes, too), cs (1: child
--                sessions, too); say: c call, b body of what it says
--       follow   session key, ms: workers write deltas of it for that long
--       notice   session key, event id, bucket, flat pairs as user and tt ms that it matters, be (1: beside one that was not shown yet), wk
--                (1: wakes the session), body, group, key, clear (0 | 1)
--       job      job, cause, cs: cancel it; one that no turn has taken ends here and will not start
--                raw: a vendor's answer as it came, the result itself unless the call's tool reads it on a queue; later: the row's own
--                task is not done yet, body {after_ms: n | null, request: JSON text} (answers.lua)
--       An outcome without a secret comes from inside: a lifted task's result counts even when its row was given to another;
--       `cancelled` says that the task was stopped because its call has an outcome, and is no outcome of its own.
-- Returns code [position, state]: accepted | duplicate | mismatch | busy | inbox_full | late | gone | conflict | expired
-- A lost reply costs nothing: the same call answers duplicate with the first answer.

local function pairs_of(i)
  local out, n = {}, tonumber(ARGV[i])
  for j = i + 1, i + 2 * n, 2 do out[ARGV[j]] = ARGV[j + 1] end
  return out, i + 2 * n + 1
end

-- A repeated control or notice is known for one to two days.
local function seen(id, bucket)
  local day = math.floor(NOW / 86400000)
  return call('HGET', P .. 'd:' .. day .. ':' .. bucket, id) or call('HGET', P .. 'd:' .. day - 1 .. ':' .. bucket, id)
end

local function remember(id, bucket, value)
  local k = P .. 'd:' .. math.floor(NOW / 86400000) .. ':' .. bucket
  call('HSET', k, id, value)
  call('EXPIRE', k, 2 * 86400)
end

local function introduce(h, m)
  if not h.new then return end
  set(h, 'cr', NOW)
  set(h, 'sc', tonumber(limit('schema') or 1))
  set(h, 'dl', m.dl or '')
  set(h, 'us', m.us or '')
  set(h, 'pf', m.pf or '')
  set(h, 'id', m.id)
  set(h, 'tn', m.tn)
  set(h, 'ag', m.ag)
  set(h, 'po', m.po)
  if m.dp then set(h, 'dp', m.dp) end
end

-- What a job row says by not saying it, which most do.
local USUAL = {us = '', md = 'steer', cw = 'settled', pr = '0', nf = '', me = ''}

local function user()
  local h, job = load(ARGV[2]), ARGV[3]
  local m, i = pairs_of(4)
  local body, cap = ARGV[i], tonumber(ARGV[i + 1])
  local was = call('HMGET', job_key(job), 'bh', 'st', 'ps')
  if was[1] then return {was[1] == m.bh and 'duplicate' or 'mismatch', was[3], was[2]} end
  if m.md == 'reject' and (h.st ~= 'idle' or h.q > 0) then return {'busy', h.q, ''} end
  if h.q >= cap then return {'inbox_full', h.q, ''} end
  introduce(h, m)
  add(h, 'q', 1)
  local f = {'st', 'queued', 'sid', h.sid, 'id', m.id, 'tn', m.tn, 'ag', m.ag, 'bh', m.bh, 'in', body, 'cr', NOW, 'ps', h.q}
  for name, usual in pairs(USUAL) do
    if m[name] ~= usual then f[#f + 1] = name; f[#f + 1] = m[name] end
  end
  if m.pa then f[#f + 1] = 'pa'; f[#f + 1] = m.pa end
  if m.ln then f[#f + 1] = 'ln'; f[#f + 1] = m.ln end
  local within = tonumber(m.to or 0)
  if within > 0 then
    f[#f + 1] = 'dl'
    f[#f + 1] = NOW + within
    call('ZADD', DEADLINES, NOW + within, 'j!' .. h.sid .. '!' .. job)
  end
  call('HSET', job_key(job), unpack(f))
  call('ZADD', P .. 'idx:' .. h.tn, NOW, h.sid)
  call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'user', 'sid', h.sid, 'job', job, 'md', m.md, 'us', m.us, 'as', m.as, 'pr', m.pr, 'ag', m.ag,
    'po', m.po, 'dy', m.dy, 'wn', m.wn, 'wx', m.wx)
  return {'accepted', h.q, 'queued'}
end

local MOST_GRANTS = 64

-- The latest are kept; who asks again for one that went costs a person a click.
local function grant_session(h, what)
  local list = {}
  for g in string.gmatch(h.gn, '[^\n]+') do
    if g ~= what then list[#list + 1] = g end
  end
  list[#list + 1] = what
  if #list > MOST_GRANTS then table.remove(list, 1) end
  set(h, 'gn', table.concat(list, '\n'))
end

-- Why a decision is not taken; nothing when it is. The first one stands, while the call waits for it and in time.
local function undecidable(h, r, value, body)
  if r.d then
    local first = call('HGET', calls_key(h, r.ord), r.c .. (r.d == 'deny' and ':r' or ':d'))
    return {r.d == value and first == body and 'duplicate' or 'conflict', 0, r.d}
  end
  -- A question may be left without an answer; there is nothing to allow about it.
  if r.k ~= 'approval' and not (r.k == 'question' and value == 'deny') then return {'conflict', 0, r.o} end
  if r.o then return {r.o == 'timeout' and 'expired' or 'conflict', 0, r.o} end
  if r.s ~= 'parked' then return {'gone'} end
  -- A tick will say so.
  if r.dl <= NOW then return {'expired', 0, 'timeout'} end
end

local function decide(h, r, value, body)
  local refused = undecidable(h, r, value, body)
  if refused then return refused end
  local by, reason, grant = ARGV[10], ARGV[11] or '', ARGV[12] or ''
  call('HSET', calls_key(h, r.ord), r.c .. (value == 'deny' and ':r' or ':d'), body)
  if value == 'deny' then
    settle(h, r, 'denied', by, reason)
    r.d = value
  else
    allow(h, r, by, reason)
    -- What was allowed for a history that is over says nothing about the one that began since.
    if grant ~= '' and r.ord == tostring(h.so) then grant_session(h, grant) end
  end
  r.by, r.da = by, NOW
  call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'decision', 'sid', h.sid, 'st', r.ord, 'c', r.c)
  return {'accepted', 0, value}
end

local function resolved(h, r, what, by)
  record(h, r.ord, false, 't', 'call/resolved', 'u', r.t, 'c', r.c, 'o', what, 'by', by)
end

local function outcome()
  local h, ord, c, value, body, secret, owner, task, by = load(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
  local r = not h.new and row(h, ord, c)
  if not r or only_wakes(r) then return {'gone'} end
  if secret ~= '' and r.h ~= secret then return {'gone'} end
  if value == 'later' then return let_go_of(h, r, owner, task, body) end
  if value == 'raw' then
    if r.k == 'callback' and r.qn then return keep_raw(h, r, body) end
    value = 'result'
  end
  local k = calls_key(h, ord)
  local late, asked = false, asks(r) and r.s == 'parked'
  -- Who says that nobody knows must be who would.
  if value == 'unknown' and not (r.tk == owner and r.tj == task) then return {'conflict', 0, r.o or ''} end
  if owner ~= '' and r.tk == owner and r.tj == task then drop_task(h, r) end
  -- Who holds the token of a call may bring its result, and not decide about it.
  if value == 'allow' or value == 'deny' then return secret == '' and decide(h, r, value, body) or {'conflict', 0, r.o} end
  -- Nobody may bring the result of a call that people have not allowed.
  if r.k == 'approval' and not r.d then return {'conflict', 0, r.o} end
  if (r.o == 'unknown' or r.o == 'timeout') and not r.la and value ~= 'cancelled' and value ~= 'unknown' then
    r.la, late = value, true
    call('HSET', k, c .. ':l', body)
    put_row(h, r)
  elseif r.o then
    put_row(h, r)
    local first = call('HGET', k, c .. (r.la and ':l' or ':r'))
    return {first == body and 'duplicate' or 'conflict', 0, r.o}
  else
    if value == 'cancelled' then value = 'error' end
    call('HSET', k, c .. ':r', body)
    if asked then r.by, r.da = by, NOW end
    settle(h, r, value, by)
  end
  if late or not asked then resolved(h, r, late and 'late' or value, by) end
  call('XADD', KEYS[1], '*', 'v', 1, 'kind', late and 'late' or 'outcome', 'sid', h.sid, 'st', ord, 'c', c)
  return {'accepted', 0, value}
end

-- What a tool has said to the user, to be seen by whoever follows; it is no part of what the model said.
local function say(h, id, bucket, turn, m)
  if seen(id, bucket) then return {'duplicate'} end
  remember(id, bucket, 'accepted')
  local ord = turn ~= '' and turn == h.tu and h.ts or tostring(h.so)
  record(h, ord, false, 't', 'message/sent', 'u', turn, 'c', m.c or '', 'b', m.b)
  return {'accepted', 0, h.st}
end

local function control()
  local h, name, id, bucket, turn = load(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
  if h.new then return {'gone'} end
  local m = pairs_of(7)
  local all = m.all == '1' and (turn == '' or turn == h.tu) and h.q > 0
  if name == 'cancel' and turn == '' then turn = h.tu end
  if name == 'say' then return say(h, id, bucket, turn, m) end
  local late = name == 'cancel' and (turn == '' and not all or turn ~= h.tu)
  local first = seen(id, bucket)
  if first then return {first == 'late' and 'late' or 'duplicate'} end
  remember(id, bucket, late and 'late' or 'accepted')
  if late then return {'late'} end
  local at = call('XADD', KEYS[1], '*', 'v', 1, 'kind', name, 'sid', h.sid, 'tu', turn, 'ca', m.ca or 'user', 'cs', m.cs or '')
  if all then
    set(h, 'xq', at)
    set(h, 'xc', m.ca)
    clear_queues(h, m.ca)
  end
  return {'accepted', 0, h.st}
end

-- Notices wake nobody, so a session that nobody writes to would collect them for ever.
local MOST_ITEMS = 400

local function notice()
  local h, id, bucket = load(ARGV[2]), ARGV[3], ARGV[4]
  local m, i = pairs_of(5)
  if seen(id, bucket) then return {'duplicate'} end
  local full = call('XLEN', inbox_key(h.sid)) + call('XLEN', next_key(h.sid)) >= MOST_ITEMS
  if full and ARGV[i + 3] ~= '1' then return {'inbox_full', h.q, ''} end
  remember(id, bucket, 'accepted')
  introduce(h, m)
  local f = {'gr', ARGV[i + 1], 'ky', ARGV[i + 2], 'b', ARGV[i]}
  for name, value in pairs({un = m.tt and string.format('%.0f', NOW + m.tt), be = m.be, wk = m.wk}) do
    f[#f + 1] = name
    f[#f + 1] = value
  end
  call('XADD', KEYS[1], '*', 'v', 1, 'kind', ARGV[i + 3] == '1' and 'clear' or 'notice', 'sid', h.sid, unpack(f))
  return {'accepted', h.q, ''}
end

local function cancel_job()
  local v = call('HMGET', job_key(ARGV[2]), 'st', 'sid', 'cq')
  if not v[1] then return {'gone'} end
  if v[1] == 'cancelled' and v[3] == 'queued' then return {'duplicate', 0, v[1]} end
  if v[1] == 'succeeded' or v[1] == 'failed' or v[1] == 'cancelled' then return {'late', 0, v[1]} end
  call('HSET', job_key(ARGV[2]), 'cq', v[1])
  if v[1] == 'queued' then
    leave_queue(load(v[2]), ARGV[2], ARGV[3])
  else
    call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'canceljob', 'sid', v[2], 'job', ARGV[2], 'ca', ARGV[3], 'cs', ARGV[4])
  end
  return {'accepted', 0, v[1]}
end

local function follow()
  local h = load(ARGV[2])
  if h.new then return {'gone'} end
  set(h, 'fu', NOW + tonumber(ARGV[3]))
  return {'accepted', 0, h.st}
end

local KINDS = {user = user, outcome = outcome, control = control, notice = notice, job = cancel_job, follow = follow}
local function main()
  return KINDS[ARGV[1]]()
end
