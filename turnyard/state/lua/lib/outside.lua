-- What runs of a parked call outside its turn: when it is handed out, what its task comes for, and the raw answers that wait for it.
-- A call that is looked at again (a poll), or whose answers are read by its tool (a callback with a queue), is handed out when its
-- time comes or an answer waits, and not when it is parked. Its deadline stands, however often that is.

-- How many answers may wait to be read.
local MOST_RAW = 16

local function relay_member(h, r) return 'r!' .. h.sid .. '.' .. r.ord .. '!' .. r.c end

local function relayable(r) return r.k == 'lift' or r.k == 'callback' and (r.qn or r.pl == 1) end

local function unread(r) return (r.wn or 0) - (r.wc or 0) end

-- Hand the call out, again or at last. The wait for somebody to take it counts from when somebody last did.
local function relay(h, r)
  r.re, r.nb = r.re + 1, nil
  put_row(h, r)
  record(h, r.ord, false, 't', 'call/relayed', 'u', r.t, 'c', r.c, 'k', r.k, 'qn', r.qn or '', 're', r.re)
  wake_lane(h, r.ord, LANE[r.k] or 'arq')
  call('ZADD', DEADLINES, NOW + relay_wait(r.re - (r.rb or 0)), relay_member(h, r))
end

-- Nobody is to take the call before `after` ms have passed, or an answer waits; nothing: only an answer counts.
local function put_off(h, r, after)
  put_row(h, r)
  if unread(r) > 0 then return relay(h, r) end
  r.nb = after and NOW + after or r.dl
  if after then call('ZADD', DEADLINES, r.nb, relay_member(h, r)) end
end

-- What a task of the call would come for; nothing when it is not for the taking.
local function wanted_of(r)
  if not relayable(r) or r.nb and NOW < r.nb then return nil end
  if unread(r) > 0 then return 'resolve' end
  if r.pl == 1 then return 'poll' end
  return r.k == 'lift' and 'run' or nil
end
