-- Note where a call's task stands, for people who ask; nothing depends on it.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: h:<store>:calls, h:<store>:live, the head
-- ARGV  session key, store ordinal, call, owner, task, body as JSON, the same as the text of a delta
-- Returns 1, or 0 when the call is not this task's any more: then nothing is noted.
-- A lost reply costs nothing.
local function main()
  local h, ord, c = load(ARGV[1]), ARGV[2], ARGV[3]
  local r = not h.new and row(h, ord, c)
  if not r or r.o or r.tk ~= ARGV[4] or r.tj ~= ARGV[5] then return 0 end
  call('HSET', calls_key(h, ord), c .. ':g', string.format('%.0f\n%s', NOW, ARGV[6]))
  if not r.pg then
    r.pg = 1
    put_row(h, r)
  end
  if h.fu > NOW then
    local key, _, le = P .. 'h:' .. h.sid .. '.' .. ord .. ':live', seqs(h, ord)
    -- A step that is further on already leaves no room for it: nothing is lost.
    redis.pcall('XADD', key, 'MAXLEN', '~', 1000, h[le] .. '-*', 'u', r.t, 's', h.rv + 1, 'k', 'progress', 'i', 0, 'b', ARGV[7])
    call('EXPIRE', key, 60)
  end
  return 1
end
