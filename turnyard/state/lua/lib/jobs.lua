-- Jobs: how they end, and who is told. ttl:job in limits is how long an ended one is kept.
local JOB_TTL = 7 * 86400

-- Wake an out lane for a store: what is to be sent is in the log already, a sender's loan or back-off stays.
local function wake_lane(h, ord, lane) call('ZADD', P .. 'out:' .. lane, 'NX', NOW, h.sid .. '.' .. ord) end

-- What carries a parked call outside; until its work is known to have begun it is carried again.
local LANE = {lift = 'arq', child = 'session'}

-- end_turn has read these of the row together with what it needs itself.
local TOLD = {'nf', 'dl', 'pa', 'ln'}

-- `f` says how: mi merged into, se and so seq and store of its answer, ca cause, er failure. `row` are the values of TOLD:
-- channel of who waits, deadline, the call of a parent session, which hears of it through the lane `session`, and further lanes.
-- An end that no turn/end tells is an event of its own.
local function end_job(h, ord, j, state, f, row)
  local k, set = job_key(j), {'st', state, 'fi', NOW}
  row = row or call('HMGET', k, unpack(TOLD))
  for name, value in pairs(f) do
    if name ~= 'alone' then
      set[#set + 1] = name
      set[#set + 1] = value
    end
  end
  local channel = row[1] and row[1] ~= ''
  if channel then set[#set + 1] = 'nf'; set[#set + 1] = '' end
  call('HSET', k, unpack(set))
  call('EXPIRE', k, JOB_TTL)
  if row[2] then call('ZREM', DEADLINES, 'j!' .. h.sid .. '!' .. j) end
  local lanes = split(row[4] or nil)
  if row[3] then lanes[#lanes + 1] = 'session' end
  if f.alone or #lanes > 0 then record(h, ord, false, 't', 'job', 'j', j, 'o', state, 'ca', f.ca or '', 'pa', row[3] or '') end
  for _, lane in ipairs(lanes) do wake_lane(h, ord, lane) end
  if channel then call('PUBLISH', row[1], j) end
end

local function finish_waiting(h, r, cause)
  for _, j in ipairs(r.j) do
    local v = call('HMGET', job_key(j), 'st', 'op')
    if v[1] == 'waiting' and tonumber(v[2] or 0) == 0 then end_job(h, r.ord, j, 'cancelled', {ca = cause, alone = true}) end
  end
end
