-- Call rows: one JSON value per call in the store's calls hash; field `_` lists those without an outcome.
-- Keys of a row: k kind, s state, aw awaited, o outcome, d decision, de demoted, la late result taken, an answered, j jobs
-- that wait for it, t turn, ag agent that made it, us user it acts for, i idempotent, tk/tj task owner and arq job, tr tries, re relays, q seq of its tool/call record,
-- nb not to be handed out before (nothing: it was), rb relays when it was last begun, mo what its task came for, lj the last task that put it off, pl 1: looked at again by itself,
-- wn/wc raw answers taken and read (<call>:w<n>), wh digests of the last ones, rp 1: <call>:p is what its deadline gives, pg 1: <call>:g is where its task stands, rq 1: <call>:q is its request,
-- dl deadline, si since when a delay or a person's answer is waited for, h hash of the token's secret, qn queue, sk struck, ord store ordinal; by, da who
-- decided and when, rq a request is kept, any whoever writes takes the place of what is asked. <call>:r is the body of its result, <call>:q the request that
-- is kept beside it, <call>:d the decision that allows it.
local DAY = 86400000
local TOMBSTONE = 7 * DAY

local function pending(h) return split(h.pe) end

local function calls_key(h, ord) return P .. 'h:' .. h.sid .. '.' .. ord .. ':calls' end

local function row(h, ord, c)
  if c == '_' or string.find(c, ':', 1, true) then return false end
  h.rows = h.rows or {}
  local r = h.rows[c]
  if r == nil then
    local raw = call('HGET', calls_key(h, ord), c)
    r = raw and cjson.decode(raw) or false
    if r then r.ord, r.c, r.j, r.tr = ord, c, r.j or {}, r.tr or 1 end
    h.rows[c] = r
  end
  return r
end

local function put_row(h, r)
  h.rows = h.rows or {}
  h.rows[r.c] = r
  r.dirty = true
end

-- Rows that wait outside, by store; a call that runs here is only among the turn's unanswered ones.
local function waiting(h, ord)
  h.un = h.un or {}
  if not h.un[ord] then h.un[ord] = split(call('HGET', calls_key(h, ord), '_') or '') end
  return h.un[ord]
end

local function without(list, x)
  local out = {}
  for i = 1, #list do
    if list[i] ~= x then out[#out + 1] = list[i] end
  end
  return out
end

local function set_waiting(h, ord, list)
  h.un[ord] = list
  h.un_dirty = h.un_dirty or {}
  h.un_dirty[ord] = true
end

local function call_member(h, r) return 'c!' .. h.sid .. '.' .. r.ord .. '!' .. r.c end

-- People are asked: whether a call may run, or a question. One that was decided asks no more, whatever it waits for then.
local function asks(r) return r.k == 'question' or r.k == 'approval' and not r.d end

-- What waits for people, by tenant.
local function asked_key(h) return P .. 'ap:' .. h.tn end
local function asked_member(h, r) return h.sid .. '.' .. r.ord .. '!' .. r.c end

local function now_waits(h, r)
  if asks(r) then
    r.si = NOW
    call('ZADD', asked_key(h), NOW, asked_member(h, r))
  end
  local list = {}
  for i, c in ipairs(waiting(h, r.ord)) do list[i] = c end
  list[#list + 1] = r.c
  set_waiting(h, r.ord, list)
  add(h, 'uw', 1)
end

local function waits_no_more(h, r)
  if asks(r) then call('ZREM', asked_key(h), asked_member(h, r)) end
  set_waiting(h, r.ord, without(waiting(h, r.ord), r.c))
  set(h, 'uw', math.max(0, h.uw - 1))
end

-- A retry delay and a timer only wake their turn: no entry, no result, nobody outside.
local function only_wakes(r) return r.k == 'retry' or r.k == 'timer' end

local function detached(r) return r.de == 1 or r.aw == 0 and (r.k == 'lift' or r.k == 'callback' or r.k == 'child') end

local function drop_task(h, r)
  if r.tk then call('SREM', P .. 'w:' .. r.tk, call_member(h, r)) end
  r.tk, r.tj, r.mo = nil, nil, nil
end

local function job_key(j) return P .. 'j:' .. j end

-- How many calls a job still waits for: those that a placeholder answered and whose outcome is not told yet.
local function job_open(r, d)
  for _, j in ipairs(r.j) do call('HINCRBY', job_key(j), 'op', d) end
end

-- What was asked is told how it came out, whichever way it did.
local function tell_resolved(h, r, outcome, by, reason)
  local TOLD_AS = {denied = 'deny', result = 'answered', error = 'answered'}
  local told = {'by', by or ''}
  if reason and reason ~= '' then told[3], told[4] = 'rs', reason end
  record(h, r.ord, false, 't', 'permission/resolved', 'u', r.t, 'c', r.c, 'k', r.k, 'o', TOLD_AS[outcome] or outcome, unpack(told))
end

-- An approval that was given waits no more; the call is run by the turn.
local function allow(h, r, by, reason)
  if r.aw == 1 then add(h, 'aw', -1) end
  waits_no_more(h, r)
  call('ZREM', DEADLINES, call_member(h, r))
  tell_resolved(h, r, 'allow', by, reason)
  r.d = 'allow'
  r.s, r.aw = 'allowed', 0
  put_row(h, r)
end

-- What stands beside a row only while it has no outcome: answers that nobody read, what its deadline would give, where its task is.
local function drop_beside(h, r)
  local gone = {}
  for n = r.wc or 0, (r.wn or 0) - 1 do gone[#gone + 1] = r.c .. ':w' .. n end
  if r.rp then gone[#gone + 1] = r.c .. ':p' end
  if r.pg then gone[#gone + 1] = r.c .. ':g' end
  r.rp, r.pg = nil, nil
  if #gone > 0 then call('HDEL', calls_key(h, r.ord), unpack(gone)) end
end

-- First writer wins; awaiting moves with it. A row that was parked stays as a tombstone for late answers.
local function settle(h, r, outcome, by, reason)
  if r.o then return false end
  r.o = outcome
  put_row(h, r)
  if r.wn or r.rp or r.pg then drop_beside(h, r) end
  if r.s == 'parked' then
    if asks(r) then tell_resolved(h, r, outcome, by, reason) end
    if r.aw == 1 then add(h, 'aw', -1) end
    waits_no_more(h, r)
    if only_wakes(r) then
      call('ZREM', DEADLINES, call_member(h, r))
      r.gone = true
    else
      call('ZADD', DEADLINES, (r.dl or NOW) + TOMBSTONE, call_member(h, r))
    end
  end
  return true
end

-- A row that nothing can ask for any more goes: its result is in the log, and nobody outside knows its name. The task of a
-- lift or the end of a child is told by our own processes, who may repeat it for a moment; a real result after `unknown`
-- or `timeout` is still to be taken, and so is a word of a task that does not know that it was called off.
local function let_go(h, r)
  local REPEATS = 60000
  put_row(h, r)
  if r.s == 'parked' then
    local late = (r.o == 'unknown' or r.o == 'timeout') and not r.la
    local by_name = r.h or r.d or r.k == 'callback' or asks(r)
    if not by_name and not r.tk and not late then call('ZADD', DEADLINES, NOW + REPEATS, call_member(h, r)) end
    return
  end
  if r.h or r.d then call('ZADD', DEADLINES, NOW + TOMBSTONE, call_member(h, r)) else r.gone = true end
end

local function answered(h, r, outcome)
  r.an = 1
  if outcome == 'placeholder' then put_row(h, r) else let_go(h, r) end
end

-- A row says nothing that its place says, nor what nearly every row would say: calls wait by the thousand.
local function stored(r)
  local place, jobs, tries, asker, repeats = r.ord, r.j, r.tr, r.us, r.i
  r.ord, r.c = nil, nil
  if #jobs == 0 then r.j = nil end
  if tries == 1 then r.tr = nil end
  if asker == '' then r.us = nil end
  if repeats == 0 then r.i = nil end
  local raw = cjson.encode(r)
  r.ord, r.j, r.tr, r.us, r.i = place, jobs, tries, asker, repeats
  return raw
end

local function save_rows(h)
  for c, r in pairs(h.rows or {}) do
    if r and r.dirty then
      r.dirty = nil
      if r.gone then
        if not r.fresh then call('HDEL', calls_key(h, r.ord), c, c .. ':r') end
      else
        r.fresh = nil
        call('HSET', calls_key(h, r.ord), c, stored(r))
        r.c = c
      end
    end
  end
  for ord in pairs(h.un_dirty or {}) do
    if #h.un[ord] > 0 then
      call('HSET', calls_key(h, ord), '_', table.concat(h.un[ord], ','))
    else
      call('HDEL', calls_key(h, ord), '_')
    end
  end
  h.un_dirty = nil
end
