-- Drain ingress in order, apply each event to its session, then admit who may run.
--
-- KEYS  ingress  stream: read from its head and deleted here. Others carry its hash tag: sessions' head, inbox, next, log and calls,
--                flows, f:<flow>, running, run:<resource>, turns:<pool>:<agent>@<serial>, limits, deadlines, dead
-- ARGV  limit    entries to apply, at least 1
-- Returns applied, admitted, left (1: more entries wait), dead (unreadable entries moved to `dead`)
-- A lost reply costs nothing: what was applied is gone from ingress.
-- What the handler of each kind reads; all of it is checked before the first write.
local NEEDS = {
  user = {'job', 'md', 'us', 'as', 'ag', 'po'}, outcome = {'st', 'c'}, late = {'st', 'c'}, decision = {'st', 'c'}, canceljob = {'job'},
  notice = {'gr', 'ky', 'b'}, clear = {'gr', 'ky'}, cancel = {'tu'}, ended = {'jobs', 'ca'},
}

local function readable(e)
  if not APPLY[e.kind] or e.v ~= '1' or not e.sid or #e.sid ~= 26 then return false end
  for _, f in ipairs(NEEDS[e.kind] or {}) do
    if not e[f] then return false end
  end
  return e.kind ~= 'user' or tonumber(e.pr) and tonumber(e.dy) and tonumber(e.wn) and tonumber(e.wx)
end

-- The job of a message that is set aside ends, and its place in the queue is free again.
local function fail_job(e)
  local h = e.kind == 'user' and e.sid and e.job and load(e.sid)
  if not h or call('HGET', job_key(e.job), 'st') ~= 'queued' then return end
  if not h.new then add(h, 'q', -1) end
  end_job(h, tostring(h.so), e.job, 'failed',
    {er = '{"code":"internal","message":"the message could not be read back and was set aside","retryable":false}', alone = not h.new or nil})
end

local function bury(e, raw, reason)
  fail_job(e)
  local job = e.job and #e.job == 22 and e.job or nil
  local known = job and call('HMGET', job_key(job), 'tn', 'id', 'ag') or {}
  letter(reason, {sid = e.sid and #e.sid == 26 and e.sid or nil, job = job, tn = known[1] or nil, id = known[2] or nil, ag = known[3] or nil}, raw)
end

local function main()
  local limit = tonumber(ARGV[1])
  local batch = call('XRANGE', KEYS[1], '-', '+', 'COUNT', limit + 1)
  local left = #batch > limit and 1 or 0
  local ids, dead = {}, 0
  for i = 1, math.min(#batch, limit) do
    local e = item(batch[i])
    ids[i] = e.eid
    local h = readable(e) and load(e.sid)
    if h and not h.new then
      APPLY[e.kind](h, e)
    elseif e.kind ~= 'wake' then
      dead = dead + 1
      bury(e, batch[i][2], h and 'no_session' or 'unreadable')
    end
  end
  if #ids > 0 then call('XDEL', KEYS[1], unpack(ids)) end
  local admitted = admit()
  return {#ids, admitted, left, dead}
end
