-- A session's head: read once, changed in memory, written once by save().
-- What a field is until it is written. A number's default says that it is one.
local DEFAULT = {
  st = 'idle', ow = '', ts = '', tu = '', cc = '', ct = '', ck = '', cs = '', jb = '', jw = '', pe = '', cm = '', tn = '', ag = '', po = '', id = '', pz = '', us = '',
  pf = '', ib = '', xq = '', xc = '', pm = '', sb = '', nc = '', gn = '',
  ep = 0, so = 0, sn = 1, rv = 0, aw = 0, at = 0, tv = 0, iw = 0, nw = 0, nd = 0, nj = 0, sl = 0, es = 0, bg = 0, pr = 0, q = 0, fu = 0, t0 = 0, la = 0, rs = 0,
  lv = 0, il = 0, dt = 0, ls = 0, dd = 0, sc = 1, ta = 0, pa = 0, tz = 0, uw = 0, ac = 0, lb = 0,
}
local HEAD = {__index = DEFAULT}

local function head_key(sid) return P .. 's:' .. sid .. ':head' end
local function inbox_key(sid) return P .. 's:' .. sid .. ':inbox' end
local function next_key(sid) return P .. 's:' .. sid .. ':next' end

-- Fields: st state, ep epoch, ow owner, so/sn current store and stores so far, tu/ts open turn and its store, rv commits,
-- aw awaiting, uw rows of all stores that wait outside, at attempt, cc/ct/ck/cs cancel cause, turn, strike and whether children go too, tz where a strike has got to, xq/xc ingress id of the last cancel of all and its cause, jb/jw jobs of the turn (all; those that wait for
-- settled calls), pe unanswered calls, ib store of what the inbox holds, iw how many of it wake, nw/nd/nj undelayed, delayed and joining items in next,
-- lv/il isolation earned and in force (0 any child, 1 a small one, 2 alone), dt deaths alone, ls lost hosts, pm why it is poisoned,
-- sl/es/bg slot start, estimate and begin, q accepted and unclaimed, rs ready since, fu followed until, t0 seq before the turn, la its last assistant entry, dd dead letters, sc schema that it is written in, pa paused since, dp how deep it stands among children, ta/tv serial that began the turn and the
-- lowest that may go on with it, sb state of the turn's strategy, nc store whose shown notices were cleared since its turn's worker was last told, ac how long the turn ran before its last begin, lo:<store> the oldest entry a model still sees,
-- gn what people allowed for the session, a line each, lb what that was before the turn's first summary.
-- One table per session and call: what one step changed, the next one sees.
local function load(sid)
  local h = HEADS[sid]
  if h then return h end
  h = {sid = sid, dirty = {}}
  local v = call('HGETALL', head_key(sid))
  for i = 1, #v, 2 do
    local field, value = v[i], v[i + 1]
    if type(DEFAULT[field]) == 'number' then value = tonumber(value) end
    h[field] = value
  end
  h.new = not h.id
  setmetatable(h, HEAD)
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

-- How long the open turn has run on workers. A clock that went back takes away what it counted since the last begin, and no more.
local function ran(h) return math.max(h.ac, h.ac + NOW - h.bg, 0) end

local function cancelled(h) return h.ct ~= '' and h.ct == h.tu end

-- The oldest serial that may go on with the turn. One that only closes may be any: closing runs nothing of the app.
local function least_serial(h) return cancelled(h) and 0 or h.tv end

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
