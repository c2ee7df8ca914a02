-- Call rows: one JSON value per call in the store's calls hash; field `_` lists those without an outcome.
-- Keys of a row: k kind, s state, aw awaited, o outcome, d decision, de demoted, la late result taken, an answered, j jobs
-- that wait for it, t turn, i idempotent, tk/tj task owner and arq job, tr tries, re relays, q seq of its tool/call record,
-- dl deadline, h hash of the token's secret, qn queue, sk struck, ord store ordinal. <call>:r is the body of its result.
local DAY = 86400000
local TOMBSTONE = 7 * DAY

local function calls_key(h, ord) return P .. 'h:' .. h.sid .. '.' .. ord .. ':calls' end

local function row(h, ord, c)
  if c == '_' or string.find(c, ':', 1, true) then return false end
  h.rows = h.rows or {}
  local r = h.rows[c]
  if r == nil then
    local raw = call('HGET', calls_key(h, ord), c)
    r = raw and cjson.decode(raw) or false
    if r then r.ord, r.c = ord, c end
    h.rows[c] = r
  end
  return r
end

local function put_row(h, r)
  if r.gone then return end
  call('HSET', calls_key(h, r.ord), r.c, cjson.encode(r))
end

local function unsettled(h, ord)
  return split(call('HGET', calls_key(h, ord), '_') or '')
end

local function without(list, x)
  local out = {}
  for i = 1, #list do
    if list[i] ~= x then out[#out + 1] = list[i] end
  end
  return out
end

local function mark_settled(h, r)
  local left = without(unsettled(h, r.ord), r.c)
  if #left > 0 then
    call('HSET', calls_key(h, r.ord), '_', table.concat(left, ','))
  else
    call('HDEL', calls_key(h, r.ord), '_')
  end
end

local function detached(r) return r.de == 1 or r.aw == 0 and (r.k == 'lift' or r.k == 'callback' or r.k == 'child') end

local function call_member(h, r) return 'c!' .. h.sid .. '.' .. r.ord .. '!' .. r.c end

local function drop_task(h, r)
  if r.tk then call('SREM', P .. 'w:' .. r.tk, call_member(h, r)) end
  r.tk, r.tj = nil, nil
end

local function job_key(j) return P .. 'j:' .. j end

local function job_open(r, d)
  for _, j in ipairs(r.j) do call('HINCRBY', job_key(j), 'op', d) end
end

-- First writer wins; awaiting moves with it. A row that was parked stays as a tombstone for late answers.
local function settle(h, r, outcome)
  if r.o then return false end
  if r.aw == 1 and r.s == 'parked' then add(h, 'aw', -1) end
  r.o = outcome
  mark_settled(h, r)
  if r.s == 'parked' then call('ZADD', P .. 'deadlines', (r.dl or NOW) + TOMBSTONE, call_member(h, r)) end
  put_row(h, r)
  return true
end

-- A row that nothing can ask for any more goes: its result is in the log, and nobody outside knows its name.
local function let_go(h, r)
  if r.s == 'parked' or r.h or r.gone then return put_row(h, r) end
  call('HDEL', calls_key(h, r.ord), r.c, r.c .. ':r')
  r.gone = true
end

local function answered(h, r, outcome)
  r.an = 1
  if outcome == 'placeholder' then put_row(h, r) else let_go(h, r) end
end
