-- A session's head: read once, changed in memory, written once by save().
local TEXT = {'st', 'ow', 'ts', 'tu', 'cc', 'ct', 'ck', 'jb', 'jw', 'pe', 'cm', 'tn', 'ag', 'po', 'id', 'pz', 'us', 'pf', 'ib'}
local NUMBER = {'ep', 'so', 'sn', 'rv', 'aw', 'at', 'tv', 'iw', 'nw', 'nd', 'nj', 'sl', 'es', 'bg', 'pr', 'q', 'fu', 't0', 'la', 'rs', 'dm'}

local function head_key(sid) return P .. 's:' .. sid .. ':head' end
local function inbox_key(sid) return P .. 's:' .. sid .. ':inbox' end
local function next_key(sid) return P .. 's:' .. sid .. ':next' end

-- Fields: st state, ep epoch, ow owner, so/sn current store and stores so far, tu/ts open turn and its store, rv commits,
-- aw awaiting, at attempt, cc/ct/ck cancel cause, turn and strike, jb/jw jobs of the turn (all; those that wait for
-- settled calls), pe unanswered calls, ib store of what the inbox holds, iw how many of it wake, nw/nd/nj undelayed, delayed and joining items in next,
-- dm deaths that are charged in part, sl/es/bg slot start, estimate and begin, q accepted and unclaimed, rs ready since, fu followed until, t0 seq before the turn, la its last assistant entry.
-- One table per session and call: what one step changed, the next one sees.
local function load(sid)
  local h = HEADS[sid]
  if h then return h end
  h = {sid = sid, dirty = {}}
  local v = call('HGETALL', head_key(sid))
  for i = 1, #v, 2 do h[v[i]] = v[i + 1] end
  h.new = not h.id
  for i = 1, #TEXT do h[TEXT[i]] = h[TEXT[i]] or '' end
  for i = 1, #NUMBER do h[NUMBER[i]] = tonumber(h[NUMBER[i]] or 0) end
  if h.st == '' then h.st = 'idle' end
  if h.sn == 0 then h.sn = 1 end
  HEADS[sid] = h
  return h
end

local function set(h, field, value)
  if h[field] ~= value then
    h[field] = value
    h.dirty[field] = true
  end
end

local function add(h, field, n) set(h, field, h[field] + n) end

local function save(h)
  local args, n = {}, 0
  for field in pairs(h.dirty) do
    args[n + 1], args[n + 2] = field, h[field]
    n = n + 2
  end
  if n > 0 then call('HSET', head_key(h.sid), unpack(args)) end
  h.dirty = {}
end

local function cancelled(h) return h.ct ~= '' and h.ct == h.tu end

-- The log. Every record moves sq:<store>, an entry moves le:<store> too.
local function log_key(h, ord) return P .. 'h:' .. h.sid .. '.' .. ord .. ':log' end

local function seqs(h, ord)
  local sq, le = 'sq:' .. ord, 'le:' .. ord
  h[sq], h[le] = tonumber(h[sq] or 0), tonumber(h[le] or 0)
  return sq, le
end

local function record(h, ord, entry, ...)
  local sq, le = seqs(h, ord)
  add(h, sq, 1)
  if entry then set(h, le, h[sq]) end
  call('XADD', log_key(h, ord), h[sq] .. '-0', 'e', h.ep, 'at', NOW, ...)
  return h[sq]
end
