-- The last rows of a copy, all of one moment.
--
-- KEYS: name of the copy under way, rows that changed since they were read, counter of revisions.
-- ARGV: this copy, rows that are read here at most.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {'lost'}
end
if redis.call('SCARD', KEYS[2]) > tonumber(ARGV[2]) then
    return {'more'}
end
local answer = {'done', redis.call('GET', KEYS[3]) or '0'}
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    answer[#answer + 1] = key
    answer[#answer + 1] = redis.call('GET', key)
end
redis.call('DEL', KEYS[1], KEYS[2])
return answer
