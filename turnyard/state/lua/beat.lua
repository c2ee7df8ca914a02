-- Keep an incarnation alive; start-up alone adds one.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: workers, fleet, serve:<pool>:<agent>, w:<owner>, limits, flows
-- ARGV  how      join | beat | leave
--       owner    128 bit id of this incarnation
--       lease_ms how long the lease lasts from now
--       join: facts as JSON {role, pools, agents: {name: serial}, capacity, host, pid, supervisor_pid}
--       beat: how many turns and tasks the caller believes it holds; -1 not to compare
-- Returns join, leave: OK. beat: LOST (expelled or unknown: take a new id), or OK and, when the counts differ, what
--       the server holds for it as session epoch | call members; then the serials alive per pool:agent of this worker
-- A lost reply costs nothing: a renewal only moves the lease forward.
local function main()
  local how, owner, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
  local score = call('ZSCORE', WORKERS, owner)
  if how == 'join' then
    if score == '-inf' then return {'LOST'} end
    local info = cjson.decode(ARGV[4])
    if not score then
      call('HSET', P .. 'fleet', owner, ARGV[4])
      if info.role == 'worker' then join(owner, info) end
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
  local held, strangers = tonumber(ARGV[4]), {}
  if held >= 0 and call('SCARD', P .. 'w:' .. owner) ~= held then
    for i, m in ipairs(call('SMEMBERS', P .. 'w:' .. owner)) do
      if string.sub(m, 1, 2) == 'c!' then
        local sid, ord, c = string.match(m, '^c!(%w+)%.(%d+)!(.+)$')
        local h = load(sid)
        local r = row(h, ord, c)
        strangers[i] = m .. ' ' .. (r and r.tj or '')
      else
        strangers[i] = m .. ' ' .. (call('HGET', head_key(m), 'ep') or 0)
      end
    end
  end
  local info, lists, named = fleet_of(owner), {}, {}
  for _, pool in ipairs(info and info.pools or {}) do
    for agent, serial in pairs(info.agents or {}) do
      local low = tonumber(limit('lo:' .. pool .. ':' .. agent) or serial)
      if low < serial then
        for _, v in ipairs(call('HVALS', P .. 'serve:' .. pool .. ':' .. agent)) do
          local s = tonumber(string.match(v, '^%d+'))
          local list = pool .. ':' .. agent .. '@' .. s
          if s > low and s <= serial and not named[list] then
            named[list] = true
            lists[#lists + 1] = list
          end
        end
      end
    end
  end
  return {'OK', strangers, lists}
end
