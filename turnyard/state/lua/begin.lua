-- Start or resume a turn: the only way from assigned to running.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: the session's head, inbox, next, log, calls; workers, w:<owner>, running, quarantine
-- ARGV  session key, epoch, owner, turn id to use when none is open, serial of the agent that this worker runs,
--       store and seq of what the worker still knows ('' and 0: nothing), mark of the commit that it knows it from
-- Returns code, head, rows, records, more, last seq, from, 1 if what the worker knows is good (see ending.lua); code OK | ALREADY | FENCED. FENCED: drop the assignment.
-- A lost reply costs one beat: the same owner's repeat answers ALREADY with the same content.
-- What a summary stands for is not read again.
local function unseen(h) return math.max(0, tonumber(h['lo:' .. h.ts] or 1) - 1) end

-- What the worker knows is good only if the last commit on the head is the one it made.
local function known(h)
  if ARGV[6] == h.sid .. '.' .. h.ts and ARGV[8] ~= '' and ARGV[8] == h.cm then return tonumber(ARGV[7]), 1 end
  return unseen(h), 0
end

-- While it runs, a lost host is charged to it alone (poison.lua).
local EVER = '9e15'

local function quarantine(h, owner)
  if h.ls < ALONE_FROM then return end
  call('HSET', P .. 'quarantine', h.sid, EVER .. ' ' .. ((fleet_of(owner) or {}).host or ''))
end

local function main()
  local sid, epoch, owner, turn, serial = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
  local lease = call('ZSCORE', WORKERS, owner)
  if not lease or lease == '-inf' then return {'FENCED'} end
  local h = load(sid)
  if h.ep ~= epoch then return {'FENCED'} end

  if h.st == 'running' and h.ow == owner then return answer(h, 'ALREADY', nil, unseen(h)) end
  if h.st ~= 'assigned' then return {'FENCED'} end
  if serial < least_serial(h) then
    release(h)
    to_ready(h, true)
    return {'FENCED'}
  end
  set(h, 'tv', math.max(h.tv, serial))
  set(h, 'st', 'running')
  set(h, 'ow', owner)
  set(h, 'bg', NOW)
  add(h, 'at', 1)
  call('ZADD', RUNNING, INF, sid)
  call('SADD', P .. 'w:' .. owner, sid)
  if h.il == 2 then quarantine(h, owner) end
  if h.tu == '' then
    set(h, 'ta', serial)
    open_turn(h, turn)
  end
  local from, good = known(h)
  -- A turn whose cause is gone by now ends at once: what wakes nobody waits for one that somebody asked for.
  if not cancelled(h) and (wakes(h) or h.jb ~= '' or h.pe ~= '') then claim(h) end
  return answer(h, 'OK', nil, from, false, good)
end
