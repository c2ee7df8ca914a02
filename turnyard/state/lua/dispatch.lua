-- uses: prelude head rows jobs flows items cancel arrive admit
-- Drain ingress in order, apply each event to its session, then admit who may run.
--
-- KEYS  ingress  stream: read from its head and deleted here. Others carry its hash tag: sessions' head, inbox, next, log and calls,
--                flows, f:<flow>, running, run:<resource>, turns:<pool>:<agent>@<serial>, limits, deadlines, dead
-- ARGV  limit    entries to apply, 1..64
-- Returns applied, admitted, left (1: more entries wait), dead (unreadable entries moved to `dead`)
-- A lost reply costs nothing: what was applied is gone from ingress.
local limit = tonumber(ARGV[1])
local batch = call('XRANGE', KEYS[1], '-', '+', 'COUNT', limit + 1)
local left = #batch > limit and 1 or 0
local ids, dead = {}, 0

local function readable(e)
  return APPLY[e.kind] and e.v == '1' and type(e.sid) == 'string' and #e.sid == 26
end

for i = 1, math.min(#batch, limit) do
  local e = item(batch[i])
  ids[i] = e.eid
  local h = readable(e) and load(e.sid)
  if h and not h.new then
    APPLY[e.kind](h, e)
  elseif e.kind ~= 'wake' then
    dead = dead + 1
    call('XADD', P .. 'dead', 'MAXLEN', '~', 10000, '*', 'reason', h and 'no such session' or 'unreadable event', unpack(batch[i][2]))
  end
end
if #ids > 0 then call('XDEL', KEYS[1], unpack(ids)) end
local admitted = admit()
save_all()
return {#ids, admitted, left, dead}
