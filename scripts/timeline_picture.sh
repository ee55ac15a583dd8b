#!/usr/bin/env bash
# timeline_picture.sh TRACE >PICTURE.svg: the operators, transfers and waits of a step as rows of
# bars, from the timeline that `cyclotron bench step CONFIG --timeline=TRACE` writes.
set -euo pipefail
grep '"ph":"X"' "$1" | sed -E \
    's/.*"name":"([a-z_0-9]+)","cat":"([a-z]+)".*"ts":([0-9.]+),"dur":([0-9.]+).*"bytes":([0-9.]+).*/\2 \1 \3 \4 \5/' |
    awk '
    function bar(y, height, from, took, colour, title) {
        printf "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\">",
            left + from * scale, y, took * scale, height, colour
        printf "<title>%s %.2f ms</title></rect>\n", title, took / 1000
    }
    NF == 5 && ($1 == "operators" || $1 == "transfers" || $1 == "waits") {
        kind[++count] = $1; name[count] = $2; start[count] = $3; length_of[count] = $4
        if ($2 == "adamw") end = $3 + $4
    }
    END {
        left = 80; width = 860; scale = width / end
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 170\" "
        print "font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"960\" height=\"170\" fill=\"white\"/>"
        print "<text x=\"4\" y=\"32\">operators</text>"
        print "<text x=\"4\" y=\"82\">transfers</text>"
        print "<text x=\"4\" y=\"132\">waits</text>"
        for (i = 1; i <= count; i++) {
            # A bar thinner than a tenth is not seen; what follows the update is no step.
            if (length_of[i] * scale < 0.1 || start[i] > end) continue
            if (kind[i] == "operators") {
                colour = name[i] == "matmul" ? "#63b3ed" : "#90cdf4"
                if (name[i] ~ /backward/) colour = "#2b6cb0"
                if (name[i] == "adamw") colour = "#a0aec0"
                bar(16, 24, start[i], length_of[i], colour, name[i])
            } else if (kind[i] == "transfers") {
                # Those that are on their way at once stand below each other.
                for (lane = 0; busy[lane] > start[i]; lane++) { }
                busy[lane] = start[i] + length_of[i]
                if (lane < 4) bar(60 + 10 * lane, 8, start[i], length_of[i], "#dd6b20", name[i])
            } else {
                bar(116, 24, start[i], length_of[i], "#c53030", name[i])
            }
        }
        for (tick = 0; tick <= 4; tick++) {
            printf "<text x=\"%.0f\" y=\"162\" text-anchor=\"%s\">%.0f ms</text>\n",
                left + width * tick / 4, tick == 4 ? "end" : "middle", end * tick / 4000
        }
        print "</svg>"
    }'
