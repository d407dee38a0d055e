-- Compare and write: changes nothing unless every row that was read is still the same.
--
-- KEYS: counter of revisions, lane of the node, name of a copy under way, rows that changed since that copy read them,
-- description of the store.
-- ARGV: number of the request in its lane ('0': it only checks), revisions that it needs; the life that the node knows,
-- the highest revision that it was told of, its last request that was done; then five lists. Each begins with its
-- length:
--   conditions: a key, and how its value begins; '' for a key that must be absent, '=N' for a sorted set of N members
--   rows: a key and its value, stored behind the number of this commit
--   places: a key of a sorted set, a member, and its score as an offset from that number
--   commands: the number of its words, and the words
--   freed: keys of sorted sets; when one is not empty, `message` is published on `channel` (the last two arguments)
-- Nothing but reads comes before the first write, and nothing but data after it: a script that fails is not rolled back.
local at = 5
local function take()
    at = at + 1
    return ARGV[at]
end

local number, needs = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local last, done = redis.call('GET', KEYS[2]), 0
if last then
    local base, freed
    done, base, freed = string.match(last, '^(%d+) (%d+) (%d)$')
    done = tonumber(done)
    if number > 0 and done >= number then
        return {'again', base, time[1], time[2], freed}
    end
end
local life, rev = redis.call('HGET', KEYS[5], 'life') or '', tonumber(redis.call('GET', KEYS[1]) or '0')
if life ~= ARGV[3] or rev < tonumber(ARGV[4]) or done < tonumber(ARGV[5]) then
    return {'lost', '0', time[1], time[2], '0', life}
end

local changed = {}
for _ = 1, tonumber(take()) do
    local key, stamp = take(), take()
    local same
    if stamp == '' then
        same = redis.call('EXISTS', key) == 0
    elseif string.byte(stamp) == 61 then
        same = redis.call('ZCARD', key) == tonumber(string.sub(stamp, 2))
    else
        same = redis.call('GETRANGE', key, 0, #stamp - 1) == stamp
    end
    if not same then
        changed[#changed + 1] = key
    end
end
if #changed > 0 then
    return {'changed', '0', time[1], time[2], '0', unpack(changed, 1, math.min(#changed, 1000))}
end
if number == 0 then
    return {'done', '0', time[1], time[2], '0'}
end

local base = redis.call('INCRBY', KEYS[1], needs) - needs
local is_copied = redis.call('EXISTS', KEYS[3]) == 1
local function note(key)
    if is_copied then
        redis.call('SADD', KEYS[4], key)
    end
end
for _ = 1, tonumber(take()) do
    local key, value = take(), take()
    redis.call('SET', key, string.format('%d ', base) .. value)
    note(key)
end
for _ = 1, tonumber(take()) do
    local key, member, offset = take(), take(), take()
    redis.call('ZADD', key, string.format('%d', base + tonumber(offset)), member)
end
for _ = 1, tonumber(take()) do
    local words = tonumber(take())
    redis.call(unpack(ARGV, at + 1, at + words))
    if ARGV[at + 1] == 'DEL' then
        note(ARGV[at + 2])
    end
    at = at + words
end
if is_copied then
    redis.call('EXPIRE', KEYS[4], 120)
end
local freed = '0'
for _ = 1, tonumber(take()) do
    if redis.call('ZCARD', take()) > 0 then
        freed = '1'
    end
end
if freed == '1' then
    redis.call('PUBLISH', ARGV[#ARGV - 1], ARGV[#ARGV])
end
redis.call('SET', KEYS[2], string.format('%d %d %s', number, base, freed), 'EX', 2592000)
return {'done', string.format('%d', base), time[1], time[2], freed}
