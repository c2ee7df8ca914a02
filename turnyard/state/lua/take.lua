-- Lend what is due in an out lane to one sender.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: out:<lane> (zset: store to due ms), heads, logs
-- ARGV  lane, limit (1..50), lease_ms, now a sender has to answer with `sent`
-- Returns per store: store, lease (answer `sent` with it), cursor seq, records after it (at most 100), how many parts of the
--       first of them that a receiver is to see are sent already
-- A lost reply costs the lease; nothing moves.
local function main()
  local lane, limit, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
  local key, out = P .. 'out:' .. lane, {}
  for _, store in ipairs(call('ZRANGEBYSCORE', key, '-inf', NOW, 'LIMIT', 0, limit)) do
    local sid, ord = string.match(store, '^(%w+)%.(%d+)$')
    local lease = NOW + lease_ms
    call('ZADD', key, 'XX', lease, store)
    local at = call('HMGET', P .. 's:' .. sid .. ':head', 'sent:' .. lane .. ':' .. ord, 'part:' .. lane .. ':' .. ord)
    local cursor = tonumber(at[1] or 0)
    local records = call('XRANGE', P .. 'h:' .. store .. ':log', '(' .. cursor .. '-0', '+', 'COUNT', 100)
    out[#out + 1] = {store, lease, cursor, records, tonumber(at[2] or 0)}
  end
  return out
end
