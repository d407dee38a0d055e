-- Begin another life of the store, or end the time in which what is void is taken back.
--
-- KEYS: description of the store, counter of revisions.
-- ARGV: the life that is known, the one that follows, revisions that a node knows; how far the counter jumps
-- ('0': by one where the life changes, so that every node sees that something changed); the server that is met now
-- ('': the same as before), the time, and that server's process; revisions that lives left out which the server
-- does not know.
-- Without a jump the counter stays below the revisions that a node knows: only so does the next commit detect the loss.
local known = redis.call('HGET', KEYS[1], 'life') or ''
if known ~= ARGV[1] then
    return known
end
local rev, told, jump = tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'life', ARGV[2])
if jump > 0 or ARGV[1] ~= ARGV[2] and rev >= told then
    redis.call('SET', KEYS[2], string.format('%d', math.max(rev, told) + math.max(jump, 1)))
end
if jump > 0 then
    local lost = math.max(told - rev - tonumber(ARGV[8]), 0)
    redis.call('HSET', KEYS[1], 'lost', string.format('%d', lost), 'had', string.format('%d', rev), 'ended', known)
end
if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[1], 'server', ARGV[5], 'since', ARGV[6], 'run', ARGV[7], 'origin', 'copied')
    redis.set_repl(redis.REPL_AOF)  -- as in commit.lua
    redis.call('HSET', KEYS[1], 'origin', 'own')
end
return ARGV[2]
