-- Who is charged when a worker dies, and which turn is ended for what it does to its workers.
-- A dead child: only the suspects that its supervisor names; a level of isolation each, a death for one that was alone. A lost host:
-- every turn on it, or only those that ran alone because of hosts lost before.
local DEATHS, LOST = 3, 5
-- A turn that loses its child so often within one step is a suspect wherever it stood: what kills while it waits must not hide
-- behind others that are in their tools each time.
local WEARY = 4

-- quarantine maps a turn that is alone because of lost hosts to the time until which it counts, and its host.
local function verdict_on(host)
  local verdict, all = 'host', call('HGETALL', P .. 'quarantine')
  for i = 1, #all, 2 do
    local till, where = string.match(all[i + 1], '^(%S+) (.*)$')
    if tonumber(till) <= NOW then
      call('HDEL', P .. 'quarantine', all[i])
    elseif where == host then
      verdict = 'spared ' .. host
    end
  end
  return verdict
end

-- The call that was running, and its tool.
local function culprit(h)
  for _, c in ipairs(pending(h)) do
    local r = row(h, h.ts, c)
    if r and r.s == 'started' and not r.o then
      local raw, name = call('XRANGE', log_key(h, h.ts), r.q .. '-0', r.q .. '-0')[1], nil
      for i = 1, raw and #raw[2] or 0, 2 do
        if raw[2][i] == 'b' then
          local good, b = pcall(cjson.decode, raw[2][i + 1])
          name = good and type(b) == 'table' and type(b.name) == 'string' and b.name or nil
        end
      end
      return c, name or '?'
    end
  end
  return '', ''
end

-- A cancel whose cause is told to everybody; the next begin only closes.
local function poison(h)
  local c, tool = culprit(h)
  local times = h.dt >= DEATHS and 'the process that ran it ' .. h.dt or 'its whole worker ' .. h.ls
  set(h, 'pm', 'this turn was ended because it stopped ' .. times .. ' times' .. (c ~= '' and ', last inside tool ' .. tool .. ' (' .. c .. ')' or ''))
  letter('poisoned', {sid = h.sid, tu = h.tu, job = split(h.jb)[1], c = c, tool = tool, deaths = h.dt, lost = h.ls})
  set_cancel(h, h.tu, {cause = 'poisoned'})
end

-- `report` is what a supervisor knows of its dead child: the suspects, and whether one of them was alone.
local function charge(h, verdict, report)
  local QUARANTINE = 60000
  if cancelled(h) then return end
  if verdict == 'child' then
    if not report or not (report.suspects[h.sid] or h.at >= WEARY) then return end
    set(h, 'lv', math.min(2, h.lv + 1))
    if report.alone then add(h, 'dt', 1) end
  elseif verdict == 'host' then
    add(h, 'ls', 1)
  elseif h.ls >= ALONE_FROM then
    add(h, 'ls', 1)
    call('HSET', P .. 'quarantine', h.sid, NOW + QUARANTINE .. ' ' .. string.sub(verdict, 8))
  else
    return
  end
  if h.dt >= DEATHS or h.ls >= LOST then poison(h) end
end
