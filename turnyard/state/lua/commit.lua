-- One transition of a turn: what it appends, what it starts, parks and settles, and how it ends, or nothing at all.
--
-- KEYS  ingress  names the shard (finish, park and yield leave a wake entry there when a flow waits). Others carry its hash tag
-- ARGV  session key, epoch, owner, rev k that this commit makes, seq of the last entry the worker knows, turn id for a turn
--       that finish opens, change as JSON (append.lua), then the bodies that the change names by number
-- Returns code, head, rows, records, more, last seq; code OK | ALREADY | FENCED | DIVERGED | AWAITS. With OK the records are those
--       after the commit's own; with ALREADY those after the caller's base, and the ending that was taken.
-- A lost reply costs nothing: the same (epoch, owner, k) answers ALREADY.
-- No quantum is shorter, so that a commit of a young turn need not ask what it is.
local SOONEST = 100

-- What a tool brought shows that its worker lived through it; what was made up for one, or a mark, does not.
local function proves(a)
  for _, x in ipairs(a.append or {}) do
    if x.t == 'answer' and (x.o == 'result' or x.o == 'error') then return true end
  end
  for _, s in ipairs(a.settle or {}) do
    if s[2] == 'result' or s[2] == 'error' then return true end
  end
  return false
end

local function forgive(h)
  set(h, 'dt', 0)
  set(h, 'ls', 0)
end

local function main()
  local sid, epoch, owner, k, base, turn = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
  h = load(sid)
  local mark = epoch .. ':' .. owner .. ':' .. k
  local done, how = string.match(h.cm, '^(%d+:%x+:%d+):(%a+)$')
  if done == mark then return answer(h, 'ALREADY', how, base) end
  local lease = call('ZSCORE', WORKERS, owner)
  if h.st ~= 'running' or h.ep ~= epoch or h.ow ~= owner or not lease or lease == '-inf' then return {'FENCED'} end
  local _, le = seqs(h, h.ts)
  if h.rv ~= k - 1 or h[le] ~= base then return {'DIVERGED'} end
  local a = cjson.decode(ARGV[7])
  local closing = cancelled(h)
  if a.ending == 'finish' and h.aw > 0 and not closing and not (a.closing and a.failure) then return {'AWAITS'} end

  set(h, 'rv', k)
  if a.append or a.settle then
    set(h, 'at', 0)
    if (h.dt > 0 or h.ls > 0) and proves(a) then forgive(h) end
  end
  -- A notice was cleared between this commit and the one before: the answer brings all that stands behind what the worker knows.
  if h.nc == h.ts then h.foreign = base end
  local own = write(a)
  local tired = NOW - h.bg >= SOONEST and NOW - h.bg >= tonumber(limit('quantum') or 30000) and others_wait(h)
  park_rows(a.park or {})
  if closing and a.park then cancel_rows(h, h.ts, {cause = h.cc, cascade = h.cs}, function(r) return r.t == h.tu and r.an == 1 end) end
  if not closing then wait_rows(a.wait or {}) end
  settle_rows(a.settle or {})
  if not closing and not tired then
    know_tokens(a.tokens or {})
    start_rows(a.start or {})
  end
  unstart_rows(a.unstart or {})
  local ending = finish_with(a, closing, tired, turn)
  set(h, 'cm', mark .. ':' .. ending)
  for _, lane in ipairs(a.lanes or {}) do call('ZADD', P .. 'out:' .. lane, 'NX', NOW, sid .. '.' .. own.ord) end
  local yield = h.st == 'running' and tired
  return answer(h, 'OK', ending, own.last, yield, own.first)
end
