"""The Lua scripts of sessions: each runs in Redis as one step."""

# KEYS: the session, the user's sessions by their ends. ARGV: session id, lifetime, idle (seconds).
OPEN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[1], now + ARGV[2], 'EX', math.min(ARGV[2], ARGV[3]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('EXPIREAT', KEYS[2], redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])
return 1
"""

# KEYS: sessions, then tenant versions. ARGV: idle (seconds), the number of sessions.
# Returns 1 for each living session, after renewing its idle time, else 0; then the tenant versions.
# A version is prefixed with Redis's run_id: a restarted Redis may have lost its last writes, so versions that gateways
# saw before must not match again. The version of a tenant that is being changed is "".
TOUCH = """
local now = tonumber(redis.call('TIME')[1])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local answers = {}
for index, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  if index > tonumber(ARGV[2]) then
    answers[index] = value == '' and '' or run .. (value or '')
  else
    local left = value and tonumber(value) - now or 0
    if left > 0 then redis.call('EXPIRE', key, math.min(left, ARGV[1])) elseif value then redis.call('DEL', key) end
    answers[index] = left > 0 and 1 or 0
  end
end
return answers
"""

# KEYS: the user's sessions. ARGV: the prefix of session keys, the session id to keep ("" keeps none).
CLOSE_ALL = """
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if id ~= ARGV[2] then
    redis.call('DEL', ARGV[1] .. id)
    redis.call('ZREM', KEYS[1], id)
  end
end
return 1
"""
