-- Write something, so that a WAIT that follows on the same connection waits for all that was written before it.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: limits
-- ARGV  none
-- Returns OK
-- A lost reply costs nothing: what is written means nothing.
local function main()
  count_limit('marks', 1)
  return 'OK'
end
