-- Move a lane's cursor forward and give the lane back; or give one record up for good.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: out:<lane>, the head (sent:<lane>:<store>), the log, inbox, next, dead
-- ARGV  lane, store, lease as `take` gave it, seq up to which all is sent, delay_ms until the rest is due, then
--       reason why the record at that seq will not be sent, '' when it was; the body of a notice that tells the session;
--       how many parts of what follows are sent, too
-- Returns 1, or 0 when the lease is not the caller's any more: then nothing changed and somebody else sends.
-- A lost reply: the repeat answers 0 and is to be taken as sent.
local function main()
  local lane, store, lease, upto, delay, reason = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
  local key = P .. 'out:' .. lane
  local due = call('ZSCORE', key, store)
  if not due or tonumber(due) ~= tonumber(lease) then return 0 end
  local sid, ord = string.match(store, '^(%w+)%.(%d+)$')
  local h, field = load(sid), 'sent:' .. lane .. ':' .. ord
  local was, parts = tonumber(h[field] or 0), 'part:' .. lane .. ':' .. ord
  if upto > was then
    set(h, field, upto)
    if h[parts] then set(h, parts, 0) end
  end
  upto = math.max(upto, was)
  local part = tonumber(ARGV[8])
  if part > tonumber(h[parts] or 0) and tonumber(ARGV[4]) == upto then set(h, parts, part) end
  if reason ~= '' then
    letter('delivery_failed', {sid = sid, la = lane, st = store}, {'seq', ARGV[4], 'why', reason})
    show_notice(h, {gr = 'delivery', ky = lane, b = ARGV[7]})
  end
  if #call('XRANGE', P .. 'h:' .. store .. ':log', '(' .. upto .. '-0', '+', 'COUNT', 1) > 0 then
    call('ZADD', key, NOW + delay, store)
  else
    call('ZREM', key, store)
  end
  return 1
end
