-- Dead letters: what could not be handled, kept for somebody who decides. Fields of a letter: reason, at, and where known sid, tn,
-- id (of the session), job, tu, ag, c (call), la (lane), st (store); e.<field> is the event as it came, whole = 1 when all of it is
-- kept. The stream is bounded in bytes (dead:cap in limits), the oldest letters go first; dead:bytes in limits counts them, and dd in
-- the head those of a session. The job of a letter stays as long as the letter: it holds the message that a retry sends again.
local DEAD_CAP, LETTER_BYTES, PER_ENTRY = 8388608, 65536, 64

local function letter_bytes(fields)
  local n = PER_ENTRY
  for i = 1, #fields do n = n + #tostring(fields[i]) end
  return n
end

-- A letter that is decided, or makes room: its job ends as jobs do.
local function forget_letter(raw)
  local f, n = {}, letter_bytes(raw[2])
  for i = 1, #raw[2], 2 do f[raw[2][i]] = raw[2][i + 1] end
  call('XDEL', P .. 'dead', raw[1])
  set_limit('dead:bytes', math.max(0, tonumber(limit('dead:bytes') or 0) - n))
  if f.job and call('HGET', job_key(f.job), 'fi') then call('EXPIRE', job_key(f.job), JOB_TTL) end
  local h = f.sid and load(f.sid)
  if h and not h.new and h.dd > 0 then add(h, 'dd', -1) end
end

-- As much of an event as a letter holds, and whether that is all of it.
local function kept_of(raw)
  local out, left, whole = {}, LETTER_BYTES, 1
  for i = 1, #raw - 1, 2 do
    local value = tostring(raw[i + 1])
    local size = #raw[i] + #value
    if left <= #raw[i] or i > 128 then return out, 0 end
    if size > left then whole = 0 end
    out[#out + 1] = 'e.' .. raw[i]
    out[#out + 1] = string.sub(value, 1, left - #raw[i])
    left = left - size
  end
  return out, whole
end

-- `about` names what is known of it, `raw` is the event as a flat list or nil. Poisoned turns, lost deliveries: whoever gives up writes one.
local function letter(reason, about, raw)
  local fields, whole = kept_of(raw or {})
  for name, value in pairs(about) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local h = about.sid and load(about.sid)
  if h and not h.new then
    add(h, 'dd', 1)
    for name, value in pairs({tn = h.tn, id = h.id, ag = about.ag or h.ag}) do
      if not about[name] then
        fields[#fields + 1] = name
        fields[#fields + 1] = value
      end
    end
  end
  for _, x in ipairs({'reason', reason, 'at', NOW, 'whole', whole}) do fields[#fields + 1] = x end
  if about.job and call('EXISTS', job_key(about.job)) == 1 then call('PERSIST', job_key(about.job)) end
  call('XADD', P .. 'dead', '*', unpack(fields))
  count_limit('dead:bytes', letter_bytes(fields))
  local cap = tonumber(limit('dead:cap') or DEAD_CAP)
  for _ = 1, 100 do
    if tonumber(limit('dead:bytes')) <= cap then return end
    local oldest = call('XRANGE', P .. 'dead', '-', '+', 'COUNT', 1)[1]
    if not oldest then return set_limit('dead:bytes', false) end
    forget_letter(oldest)
  end
end
