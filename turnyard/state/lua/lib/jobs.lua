-- Jobs: how they end, and who is told. ttl:job in limits is how long an ended one is kept.
local JOB_TTL = 7 * 86400

local function end_job(j, state, merged, seq, ord, cause, channel)
  local k = job_key(j)
  local f = {'st', state, 'fi', NOW}
  if merged and merged ~= j then f[#f + 1] = 'mi'; f[#f + 1] = merged end
  if seq then f[#f + 1] = 'se'; f[#f + 1] = seq; f[#f + 1] = 'so'; f[#f + 1] = ord end
  if cause then f[#f + 1] = 'ca'; f[#f + 1] = cause end
  if channel == nil then channel = call('HGET', k, 'nf') end
  if channel and channel ~= '' then f[#f + 1] = 'nf'; f[#f + 1] = '' end
  call('HSET', k, unpack(f))
  call('EXPIRE', k, JOB_TTL)
  if channel and channel ~= '' then call('PUBLISH', channel, j) end
end

local function finish_waiting(h, r)
  for _, j in ipairs(r.j) do
    local v = call('HMGET', job_key(j), 'st', 'op')
    if v[1] == 'waiting' and tonumber(v[2] or 0) == 0 then
      end_job(j, 'cancelled', nil, nil, nil, 'user')
      record(h, r.ord, false, 't', 'job', 'j', j, 'o', 'cancelled')
    end
  end
end
