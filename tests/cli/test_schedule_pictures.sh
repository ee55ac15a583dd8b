# The pictures of the pipeline chapter are what the program draws today.

. "$(dirname "$0")/lib.sh"

CYCLOTRON=$cyclotron bash "$source_folder/scripts/schedule_pictures.sh" "$folder/pictures" || {
    echo "FAIL: the script ended with an error"
    failures=$((failures + 1))
}
for picture in "$source_folder"/docs/pictures/schedule_*.svg; do
    if ! cmp -s "$picture" "$folder/pictures/$(basename "$picture")"; then
        echo "FAIL: $(basename "$picture") is not what the program draws: run scripts/schedule_pictures.sh"
        failures=$((failures + 1))
    fi
done
drawn=$(find "$folder/pictures" -name "*.svg" | wc -l)
[ "$drawn" = 6 ] || { echo "FAIL: $drawn pictures, not 6"; failures=$((failures + 1)); }

finish
