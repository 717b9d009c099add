"""TextCraft: craft an item of Minecraft from recipes."""
