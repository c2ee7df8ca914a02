-- Decide about a dead letter: take it out, or put what came back where it came from.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: dead, limits, j:<job>, the head, out:<lane>
-- ARGV  how      drop | again (a letter of the shard's own events, kept whole: the same event once more) | send (a record that asks for it, and its lane is due unless somebody has it)
--       id       of the letter in the stream
-- Returns done | gone (no such letter) | cut (not all of it was kept) | no_session
-- A lost reply: the repeat answers gone, and what was asked for is done.
local function main()
  local raw = call('XRANGE', P .. 'dead', ARGV[2], ARGV[2])[1]
  if not raw then return 'gone' end
  local f, event = {}, {}
  for i = 1, #raw[2], 2 do
    f[raw[2][i]] = raw[2][i + 1]
    local field = string.match(raw[2][i], '^e%.(.*)$')
    if field then
      event[#event + 1] = field
      event[#event + 1] = raw[2][i + 1]
    end
  end
  if ARGV[1] ~= 'drop' and (not f.sid or load(f.sid).new) then return 'no_session' end
  if ARGV[1] == 'again' then
    if f.whole ~= '1' or #event == 0 then return 'cut' end
    call('XADD', KEYS[1], '*', unpack(event))
  elseif ARGV[1] == 'send' then
    -- A cursor never goes back: what is to be sent again is a record of its own.
    local sid, ord = string.match(f.st, '^(%w+)%.(%d+)$')
    if f['e.seq'] then record(load(sid), ord, false, 't', 'delivery/again', 'x', f['e.seq']) end
    wake_lane(load(sid), ord, f.la)
  end
  forget_letter(raw)
  return 'done'
end
