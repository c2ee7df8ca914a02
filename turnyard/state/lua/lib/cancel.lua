-- Cancel, and what a newer message of the asker does to calls that hold the turn.
local OVERDUE = 10000

local function aside_cancelled(h, r)
  if r.aw == 1 or r.an ~= 1 then return end
  put(h, {k = 'note', c = r.c, o = 'cancelled', st = r.ord, w = '0', kd = r.k})
  job_open(r, -1)
  finish_waiting(h, r)
end

local function cancel_rows(h, ord, match)
  for _, c in ipairs(waiting(h, ord)) do
    local r = row(h, ord, c)
    if r and r.s == 'parked' and match(r) then
      settle(h, r, 'cancelled')
      if r.tk then call('RPUSH', P .. 'w:' .. r.tk .. ':ctl', 'call ' .. r.c) end
      aside_cancelled(h, r)
    end
  end
end

local function set_cancel(h, turn, cause, strike)
  if turn == '' or h.tu ~= turn then return false end
  local kept = cancelled(h) and h.ck or ''
  set(h, 'ct', turn)
  set(h, 'cc', cause)
  set(h, 'ck', strike or kept)
  cancel_rows(h, h.ts, function(r) return r.t == turn end)
  if h.st == 'parked' then
    for _, c in ipairs(split(h.pe)) do
      local r = row(h, h.ts, c)
      if r and r.aw == 1 and r.t == turn then settle(h, r, 'cancelled') end
    end
    if h.aw <= 0 then to_ready(h, true) end
  elseif h.st == 'running' and h.ow ~= '' then
    local ctl = P .. 'w:' .. h.ow .. ':ctl'
    call('RPUSH', ctl, 'turn ' .. h.sid .. ' ' .. h.ep)
    call('PEXPIRE', ctl, 60000)
    call('ZADD', DEADLINES, NOW + OVERDUE, 'x!' .. h.sid)
  end
  return true
end

-- The asker wrote: parked approvals are superseded, other parked awaited calls become detached; a retry delay stays.
local function overtake(h)
  for _, c in ipairs(waiting(h, h.ts)) do
    local r = row(h, h.ts, c)
    if r and r.aw == 1 and r.s == 'parked' then
      if r.k == 'approval' then
        settle(h, r, 'superseded')
      elseif r.k ~= 'retry' and r.k ~= 'timer' then
        r.aw, r.de = 0, 1
        add(h, 'aw', -1)
        put_row(h, r)
      end
    end
  end
end
