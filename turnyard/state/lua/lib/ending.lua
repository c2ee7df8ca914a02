-- How a turn ends for its jobs, and what is answered to the worker.
local function end_turn(h, failure)
  local poisoned = cancelled(h) and h.cc == 'poisoned'
  if poisoned then failure = cjson.encode({code = 'poisoned', message = h.pm, retryable = false, ref = cjson.null}) end
  local jobs, wait = split(h.jb), {}
  for _, j in ipairs(split(h.jw)) do wait[j] = true end
  local was_cancelled = cancelled(h) and not poisoned
  local last = h.la > 0 and h.la or nil
  for _, j in ipairs(jobs) do
    local v = call('HMGET', job_key(j), 'st', 'op', unpack(TOLD))
    local told = {v[3], v[4], v[5], v[6]}
    if v[1] == 'running' then
      if wait[j] and tonumber(v[2] or 0) > 0 then
        call('HSET', job_key(j), 'st', 'waiting', 'se', last or 0, 'so', h.ts)
      elseif was_cancelled then
        end_job(h, h.ts, j, 'cancelled', {ca = h.cc}, told)
      elseif failure then
        end_job(h, h.ts, j, 'failed', {er = failure, mi = jobs[1] ~= j and jobs[1] or nil}, told)
      else
        end_job(h, h.ts, j, 'succeeded', {mi = jobs[1] ~= j and jobs[1] or nil, se = last, so = last and h.ts}, told)
      end
    end
  end
  if poisoned then
    -- The letter that was written of it keeps the message, unless somebody dropped it meanwhile.
    if jobs[1] and h.dd > 0 then call('PERSIST', job_key(jobs[1])) end
    -- People see it in the log, and the model in the session's next turn.
    record(h, h.ts, true, 't', 'notification', 'u', h.tu, 'gk', 'turnyard\npoisoned', 'b', cjson.encode({tag = 'poisoned', text = h.pm}))
  end
  local ended = was_cancelled and 'cancelled' or failure and 'failed' or 'finished'
  record(h, h.ts, false, 't', 'turn/end', 'u', h.tu, 'j', h.jb, 'o', ended, body_of(was_cancelled and {'ca', h.cc} or {}, failure))
  set(h, 'jb', '')
  set(h, 'jw', '')
  set(h, 'tu', '')
  set(h, 'ts', '')
  set(h, 'pe', '')
  set(h, 'cc', '')
  set(h, 'ct', '')
  set(h, 'ck', '')
  set(h, 'cs', '')
  set(h, 'tz', 0)
  set(h, 'tv', 0)
  set(h, 'at', 0)
  set(h, 'lv', 0)
  set(h, 'dt', 0)
  set(h, 'ls', 0)
  set(h, 'pm', '')
  set(h, 'la', 0)
  set(h, 'sb', '')
  set(h, 'ac', 0)
  set(h, 'lb', 0)
end

-- The reply of begin and commit: code, head, rows of unanswered calls, records after `from`, `more` when they must be paged instead,
-- last seq, from, first: with OK the caller's own records from `first` up to `from` stand as it sent them.
local PAGE, BYTES = 200, 262144

local function answer(h, code, ending, from, yield, first)
  -- A repeat may find the session in other hands; for the caller its turn is over then.
  local open = h.st == 'running' and h.ep == tonumber(ARGV[2]) and h.ow == ARGV[3]
  local head = {h.ep, h.rv, h.tu, open and h.ts or '', cancelled(h) and h.cc or '', yield and 1 or 0, open and 1 or 0, ending or '', h.jb, h.tn, h.id, h.ag, math.max(0, h.fu - NOW), NOW, h.at, h.tv, h.us, h.pf, open and h[(select(2, seqs(h, h.ts)))] or 0, h.ta, open and ran(h) or 0, open and h.sb or ''}
  if h.gn ~= '' then head[#head + 1] = h.gn end
  local rows, records, more = {}, {}, 0
  if open then
    if h.nc == h.ts then set(h, 'nc', '') end
    for i, c in ipairs(pending(h)) do
      local r = row(h, h.ts, c)
      if r.d then r.db = call('HGET', calls_key(h, h.ts), c .. ':d') or nil end
      rows[i] = cjson.encode(r)
      r.db = nil
    end
    if h[(seqs(h, h.ts))] > from then records = call('XRANGE', log_key(h, h.ts), '(' .. from .. '-0', '+', 'COUNT', PAGE + 1) end
    local size = 0
    for i = 1, #records do
      for j = 1, #records[i][2] do size = size + #records[i][2][j] end
      if i > PAGE or size > BYTES then
        more = 1
        records = {}
        break
      end
    end
  end
  local sq = open and h[(seqs(h, h.ts))] or 0
  return {code, head, rows, records, more, sq, from, first or 0}
end
