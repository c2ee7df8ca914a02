-- A lifted task's first act: take its call's row, so that nobody else runs it.
--
-- KEYS  ingress  names the shard. Others carry its hash tag: h:<store>:calls, h:<store>:log, the head, workers, w:<owner>, j:<job>
-- ARGV  session key, store ordinal, call, owner, task (arq job id)
-- Returns code: OK | ALREADY (the same pair again) followed by name and arguments as stored, tenant, session, user, agent, turn,
--       deadline ms, tries, mode (run | poll | resolve), kind, request, the oldest raw answer, decision, platform, metadata as JSON; OFF followed by the same:
--       a call that is looked at again was cancelled, so its tool may stop what goes on elsewhere, and the row is nobody's; FENCED (outcome there, another
--       task's, or not its time yet) or GONE (no row): do not run. LOST: the owner is
--       not alive, which says nothing about the row: begin it under the next name.
-- What the tool may take counts from here; waiting for a task had a bound of its own. A poll's deadline is that of the whole wait.
-- A lost reply: repeat, the same pair answers ALREADY.
local function take_row(h, r, owner, task, mode)
  r.tk, r.tj, r.mo, r.nb, r.rb = owner, task, mode, nil, r.re
  if mode == 'run' then
    r.dl = NOW + (r.tm or r.dl - NOW)
    call('ZADD', DEADLINES, r.dl, call_member(h, r))
  end
  put_row(h, r)
  call('SADD', P .. 'w:' .. owner, call_member(h, r))
  call('ZREM', DEADLINES, relay_member(h, r))
end

local function body_of_call(h, r)
  local raw = call('XRANGE', log_key(h, r.ord), r.q .. '-0', r.q .. '-0')[1]
  for i = 1, raw and #raw[2] or 0, 2 do
    if raw[2][i] == 'b' then return raw[2][i + 1] end
  end
  return ''
end

local function answer(code, h, r, mode)
  local function beside(name) return call('HGET', calls_key(h, r.ord), r.c .. name) or '' end
  local request, raw = r.rq and beside(':q') or '', mode == 'resolve' and beside(':w' .. r.wc) or ''
  return {code, body_of_call(h, r), h.tn, h.id, r.us or h.us, r.ag or h.ag, r.t, r.dl, r.tr, mode, r.k, request, raw, r.d and beside(':d') or '',
    h.pf, r.j[1] and call('HGET', job_key(r.j[1]), 'me') or ''}
end

local function main()
  local h, ord, c, owner, task = load(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local r = not h.new and row(h, ord, c)
  if not r then return {'GONE'} end
  local lease = call('ZSCORE', WORKERS, owner)
  if not lease or lease == '-inf' then return {'LOST'} end
  if r.o == 'cancelled' and r.pl == 1 and not r.tk then return answer('OFF', h, r, 'poll') end
  local mode = r.mo or wanted_of(r)
  if r.o or r.s ~= 'parked' or not mode or r.tk and not (r.tk == owner and r.tj == task) then
    if r.tk == owner and r.tj == task then
      drop_task(h, r)
      put_row(h, r)
    end
    return {'FENCED'}
  end
  local code = r.tk and 'ALREADY' or 'OK'
  if not r.tk then take_row(h, r, owner, task, mode) end
  return answer(code, h, r, mode)
end
