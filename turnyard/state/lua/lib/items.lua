-- What waits for a session: `inbox` joins the open turn, `next` waits for a turn of its own.
-- Item fields: k kind, m job, c call, o outcome, l late, st store, w wakes, as asker, us user, sj may join, du due, fi first,
-- g collect window, gr/ky group and key of a notice (empty: context without a pair), un when it stops to matter, b body, at accepted.
local function item(raw)
  local f = {}
  for i = 1, #raw[2], 2 do f[raw[2][i]] = raw[2][i + 1] end
  f.eid = raw[1]
  return f
end

-- All of them: who writes a queue anew must have read the whole of it. accept bounds how much that can be.
local function items(key)
  local out = {}
  for i, raw in ipairs(call('XRANGE', key, '-', '+')) do out[i] = item(raw) end
  return out
end

local function fields(it)
  local out = {}
  for k, v in pairs(it) do
    if k ~= 'eid' then
      out[#out + 1] = k
      out[#out + 1] = v
    end
  end
  return out
end

local function push(key, it) call('XADD', key, '*', unpack(fields(it))) end

-- Write a queue anew, in this order; used where an item changes or goes to the front.
local function rewrite(key, list)
  call('DEL', key)
  for _, it in ipairs(list) do push(key, it) end
end

local function count_inbox(h, list)
  local n = 0
  for _, it in ipairs(list) do
    if it.w == '1' then n = n + 1 end
  end
  set(h, 'iw', n)
  set(h, 'ib', list[1] and list[1].st or '')
end

local function count_next(h, list)
  local nw, nd, nj = 0, 0, 0
  for _, it in ipairs(list) do
    if it.du then nd = nd + 1 elseif it.w == '1' then nw = nw + 1 end
    if it.sj == '1' then nj = nj + 1 end
  end
  set(h, 'nw', nw)
  set(h, 'nd', nd)
  set(h, 'nj', nj)
end

local function save_inbox(h, list)
  rewrite(inbox_key(h.sid), list)
  count_inbox(h, list)
end

local function save_next(h, list)
  rewrite(next_key(h.sid), list)
  count_next(h, list)
end

local function push_next(h, it)
  push(next_key(h.sid), it)
  if it.du then add(h, 'nd', 1) elseif it.w == '1' then add(h, 'nw', 1) end
  if it.sj == '1' then add(h, 'nj', 1) end
end

-- An item joins the inbox when it is of the store whose turn is open, or of the store the inbox already holds; else it
-- queues in `next` and keeps its right to join.
local function put(h, it)
  local same
  if h.tu ~= '' then
    same = it.st == h.ts
  else
    same = h.nj == 0 and (h.ib == '' or h.ib == it.st)
  end
  it.sj = '1'
  if same then
    push(inbox_key(h.sid), it)
    set(h, 'ib', it.st)
    if it.w == '1' then add(h, 'iw', 1) end
  else
    push_next(h, it)
  end
  return same
end

-- An unshown notice of the group and key goes; the first of the current store takes the new body instead. True: one did.
local function drop_notice(h, group, key, body, till)
  local store, replaced = tostring(h.so), false
  for _, q in ipairs({inbox_key(h.sid), next_key(h.sid)}) do
    local list, kept, hit = items(q), {}, false
    for _, x in ipairs(list) do
      if x.k == 'notice' and x.gr == group and x.ky == key then
        hit = true
        if body and not replaced and x.st == store then
          x.b, x.un = body, till
          replaced = true
          kept[#kept + 1] = x
        end
      else
        kept[#kept + 1] = x
      end
    end
    if hit and q == inbox_key(h.sid) then save_inbox(h, kept) elseif hit then save_next(h, kept) end
  end
  return replaced
end

-- A newer notice replaces an unshown one of its pair and store, unless it says that it stands beside it; one of an older store
-- is removed.
local function show_notice(h, e)
  if not e.be and drop_notice(h, e.gr, e.ky, e.b, e.un) then return end
  put(h, {k = 'notice', gr = e.gr, ky = e.ky, b = e.b, un = e.un, st = tostring(h.so), w = e.wk or '0', at = NOW})
end

-- The calls of which an item still has to tell.
local function untold(h)
  if h.untold then return h.untold end
  h.untold = {}
  for _, key in ipairs((h.ib ~= '' or h.nj > 0) and {inbox_key(h.sid), next_key(h.sid)} or {}) do
    for _, it in ipairs(items(key)) do
      if it.c then h.untold[it.st .. '!' .. it.c] = true end
    end
  end
  return h.untold
end
