-- What comes of a call before its outcome: a vendor's answer as it came, and a task's word that it is not done yet.
local function digest_of(body) return string.sub(redis.sha1hex(body), 1, 16) end

-- Whether the answer is one of the last `n` that were taken, or of all that are remembered.
local function known_raw(r, digest, n)
  local list = split(r.wh)
  for i = math.max(1, n and #list - n + 1 or 1), #list do
    if list[i] == digest then return true end
  end
  return false
end

local function remember_raw(r, digest)
  local list = split(r.wh)
  list[#list + 1] = digest
  if #list > 2 * MOST_RAW then table.remove(list, 1) end
  r.wh = table.concat(list, ',')
end

-- Answers are kept in order until a task of the call has read them. One that was read and changed nothing may come again.
local function keep_raw(h, r, body)
  local digest = digest_of(body)
  if r.o then return {known_raw(r, digest) and 'duplicate' or r.o == 'timeout' and 'expired' or 'conflict', 0, r.o} end
  if known_raw(r, digest, unread(r)) then return {'duplicate', 0, 'raw'} end
  -- A tick will say so.
  if r.s == 'parked' and r.dl <= NOW then return {'expired', 0, 'timeout'} end
  if unread(r) >= MOST_RAW then return {'inbox_full', 0, 'raw'} end
  r.wn, r.wc = (r.wn or 0) + 1, r.wc or 0
  call('HSET', calls_key(h, r.ord), r.c .. ':w' .. r.wn - 1, body)
  remember_raw(r, digest)
  put_row(h, r)
  if r.s == 'parked' and r.nb then relay(h, r) end
  return {'accepted', 0, 'raw'}
end

local function read_one(h, r)
  call('HDEL', calls_key(h, r.ord), r.c .. ':w' .. r.wc)
  r.wc = r.wc + 1
end

-- The row's own task lets go of it; it came to its end, so earlier deaths count no more. What a worker had let go of in its turn is handed
-- on only where it may be repeated.
local function let_go_of(h, r, owner, task, body)
  local own = r.tk == owner and r.tj == task
  if not own then return {r.lj == task and 'duplicate' or 'conflict', 0, r.o or ''} end
  if r.o or not relayable(r) and r.i ~= 1 then
    if r.o then
      drop_task(h, r)
      put_row(h, r)
    end
    return {'conflict', 0, r.o or ''}
  end
  local how = cjson.decode(body)
  local after = type(how.after_ms) == 'number' and how.after_ms or nil
  if not relayable(r) then r.k = 'lift' end
  if r.mo == 'resolve' then read_one(h, r) end
  if type(how.request) == 'string' then
    call('HSET', calls_key(h, r.ord), r.c .. ':q', how.request)
    r.rq, r.pl = 1, 1
  end
  drop_task(h, r)
  r.lj, r.tr, r.tm = task, 1, nil
  if after and after <= 0 then relay(h, r) else put_off(h, r, after) end
  return {'accepted', 0, 'later'}
end
