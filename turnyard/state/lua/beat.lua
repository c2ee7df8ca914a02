-- Keep an incarnation alive; start-up alone adds one.
--
-- KEYS  ingress  names the shard (room for who waits leaves a wake entry there). Others carry its hash tag: workers, fleet, serve:<pool>:<agent>, w:<owner>, limits, flows, iso,
--                offer:<pool>, blocked:<resource>, heads
-- ARGV  how      join | beat | leave
--       owner    128 bit id of this incarnation
--       lease_ms how long the lease lasts from now
--       join: facts as JSON {role, pools, agents: {name: serial}, capacity, host, pid, supervisor_pid, schemas: [oldest, newest]}
--       beat: how many turns and tasks the caller believes it holds; -1 not to compare. Then the levels of isolation (1 small,
--       2 alone) for which its supervisor could start a child, as digits. Then, with several shards, the room it has here from now on
-- Returns join, leave: OK; join: OLD when new data is in a schema that the caller does not know. beat: LOST (expelled or unknown: take a new id), or OK and, when the counts differ, what
--       the server holds for it as session epoch | call members; then further lists it may take from; then the levels of isolation
--       for which its supervisor should start a child; then, when
--       it said its room, the room it has (never less than it holds), what it holds, and how many sessions wait for such room
-- A lost reply costs nothing: a renewal only moves the lease forward.
-- What the server counts to this owner: session epoch | call member and its task.
local function held_by(owner)
  local out = {}
  for i, m in ipairs(call('SMEMBERS', P .. 'w:' .. owner)) do
    local sid, ord, c = string.match(m, '^c!(%w+)%.(%d+)!(.+)$')
    if sid then
      local r = row(load(sid), ord, c)
      out[i] = m .. ' ' .. (r and r.tj or '')
    else
      out[i] = m .. ' ' .. (call('HGET', head_key(m), 'ep') or 0)
    end
  end
  return out
end

-- Lists of newer turns, and of sessions in a newer schema, that this owner may run, too: a worker with an older agent or version is
-- alive, so they lie apart.
local function newer_lists(info)
  local out, named = {}, {}
  local function name_list(list)
    if not named[list] then out[#out + 1] = list end
    named[list] = true
  end
  for _, pool in ipairs(info and info.pools or {}) do
    for agent, serial in pairs(info.agents or {}) do
      local low = tonumber(limit('lo:' .. pool .. ':' .. agent) or serial)
      local first, last = tonumber(limit('hs:' .. pool .. ':' .. agent) or 1) + 1, newest_of(info)
      for _, v in ipairs((low < serial or first <= last) and call('HVALS', P .. 'serve:' .. pool .. ':' .. agent) or {}) do
        local s = tonumber(string.match(v, '^%d+'))
        local list = pool .. ':' .. agent .. '@' .. s
        if s > low and s <= serial then name_list(list) end
        for schema = s <= serial and first or last + 1, last do name_list(list .. '~' .. schema) end
      end
    end
  end
  return out
end

-- Whether a session that this worker's agents may run waits for a child of `pool`.
local function waits_for(pool, info)
  for _, flow in ipairs(call('SRANDMEMBER', P .. 'blocked:p/' .. pool, 10)) do
    local serial = (info.agents or {})[string.match(flow, '/(.*)!%d$') or '']
    local first = call('ZRANGE', flow_key(flow), 0, 0)[1]
    if serial and first and serial >= load(first).tv then return true end
  end
  return false
end

-- The levels of isolation, of those that this worker's supervisor is able to, for which it should start a child. Each is asked of
-- one supervisor at a time.
local function wanted(info, able, lease_ms)
  local out = {}
  if not info or able == '' or tonumber(limit('nb') or 0) == 0 then return out end
  for level in string.gmatch(able, '%d') do
    local taken = level == '2' and call('HEXISTS', P .. 'iso', info.host or '') == 1
    for _, name in ipairs(taken and {} or info.pools) do
      local pool = name .. '!' .. level
      if call('EXISTS', P .. 'blocked:p/' .. pool) == 1 and waits_for(pool, info)
        and call('SET', P .. 'offer:' .. pool, 1, 'NX', 'PX', math.ceil(lease_ms / 3)) then
        out[#out + 1] = tonumber(level)
        break
      end
    end
  end
  return out
end

local function main()
  local how, owner, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
  local score = call('ZSCORE', WORKERS, owner)
  if how == 'join' then
    if score == '-inf' then return {'LOST'} end
    local info = cjson.decode(ARGV[4])
    if newest_of(info) < tonumber(limit('schema') or 1) then return {'OLD'} end
    if not score then
      call('HSET', P .. 'fleet', owner, ARGV[4])
      if info.role == 'worker' then
        join(owner, info)
        leave_wake()
      end
    end
    call('ZADD', WORKERS, NOW + lease_ms, owner)
    return {'OK'}
  end
  if how == 'leave' then
    if call('SCARD', P .. 'w:' .. owner) == 0 and score and score ~= '-inf' then
      part(owner)
      call('ZREM', WORKERS, owner)
      call('DEL', P .. 'w:' .. owner .. ':ctl')
    end
    return {'OK'}
  end
  if not score or score == '-inf' then return {'LOST'} end
  call('ZADD', WORKERS, 'XX', 'GT', NOW + lease_ms, owner)
  local held = tonumber(ARGV[4])
  local differs = held >= 0 and call('SCARD', P .. 'w:' .. owner) ~= held
  local info = fleet_of(owner)
  local out = {'OK', differs and held_by(owner) or {}, newer_lists(info), wanted(info, ARGV[5], lease_ms)}
  if ARGV[6] then
    out[5] = resize(owner, tonumber(ARGV[6]))
    out[6] = call('SCARD', P .. 'w:' .. owner)
    out[7] = short_of_room(owner)
    if out[5] > (info and info.capacity or 0) then leave_wake() end
  end
  return out
end
